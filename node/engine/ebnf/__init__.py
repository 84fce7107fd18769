"""Forms as rules of a grammar in xgrammar's EBNF."""
