"""Cases beyond the corpus, in its form, each with the verdict that it must get and no other.

The corpus is what every guard should stand; these are the variations around it, made from lists.
"""

# ruff: noqa: RUF001, SIM905 -- look-alike characters are the cases, and lists of URLs read best as one string

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from node.images.verdict import Verdict
from tests.integration.egress import lab as hosts
from tests.integration.egress.behaviours import LARGEST
from tests.integration.egress.floods import BURSTS, PLAIN_FLOODS

Case = dict[str, Any]
OK, BAD, DENIED = "ok", "invalid_request", "egress_denied"
_ZONE = {"ok.lab.example": {"A": [hosts.GOOD]}, "cdn.lab.example": {"A": [hosts.GOOD]}}


def _case(group: str, url: str, expect: str, verdict: Verdict, name: str = "", zone: Any = None) -> Case:
    shown = (name or url).encode("ascii", "backslashreplace").decode()[:60]
    return {"group": group, "name": f"{group}-{shown}", "url": url, "expect": expect, "verdict": verdict, "dns": zone}


def _literals() -> Iterator[Case]:
    ipv4 = """
    127.1 127.0.0.1.. 0177.0.0.1 0177.0.1 0177.1 0x7f.1 0x7f.0.1 0x7f.0.0x0.1 0X7F.0.0.1 0X7F000001 127.0.0.01
    127.00.00.01 00000127.0.0.1 0000000000000177.0.0.1 4294967295 4294967296 99999999999999999999 00 0x 0x0 0x.
    0.0.0.0 1 01 127 127.255.255.254 127.0.0.1.0x 1.2.3.4.5 a.b.c.1 ok.lab.example.1 ok.lab.example.0x1f 2852039166
    0xa9fea9fe 0xa9.0xfe.0xa9.0xfe 0251.254.169.254 169.254.43518 169.16689662 169.254.169.254. 0xa.1 10.1 012.1
    192.168.257 192.168.0x101 8.8.8.8 0x08080808 134744072 1.1 255.255.255.255 224.0.0.1 100.64.0.1 168.63.129.16
    """.split()
    for text in ipv4:
        dots = text.endswith("..")
        yield _case("v4", f"https://{text}/", DENIED, Verdict.BAD_NAME if dots else Verdict.ADDRESS_LITERAL)
        if not dots:
            yield _case("v4-port", f"https://{text}:443/ok.png?x", DENIED, Verdict.ADDRESS_LITERAL)
    ipv6 = """
    0:0:0:0:0:0:0:1 0000::1 ::0001 ::ffff:0a00:0001 ::ffff:169.254.169.254 ::127.0.0.1 ::7f00:1 ::ffff:0:a9fe:a9fe
    64:ff9b::127.0.0.1 64:ff9b::a9fe:a9fe 64:ff9b:1:a9fe:a9:fe00:: 2002:a9fe:a9fe:: 2002:0a00:0001::1
    2001:0:4136:e378:8000:63bf:80ff:fffe 2001:470::5efe:10.0.0.1 fe80::1%251 ::1%lo ::1%00 fd00:ec2::254
    fd20:ce::254 ff02::1 v1.x v1.::1 vF.127.0.0.1 1 127.0.0.1 localhost ok.lab.example ::1]@ok.lab.example
    """.split()
    for text in ipv6:
        verdict = Verdict.USERINFO if "@" in text else Verdict.ADDRESS_LITERAL
        yield _case("v6", f"https://[{text}]/", DENIED, verdict)
        yield _case("v6-port", f"https://[{text}]:443/", DENIED, verdict)
    for text in ("[", "[]", "[]:443", "[[::1]]", "[::1]x", "[::1].lab.example", "[::1]:x"):
        yield _case("v6", f"https://{text}/", DENIED, Verdict.ADDRESS_LITERAL)
    for text in ("x[::1]", "::ffff:127.0.0.1", "fe80::1", "ok.lab.example[::1]", "2001:db8::1"):
        verdict = Verdict.NO_HOST if text.startswith(":") else Verdict.BAD_PORT if ":" in text else Verdict.BAD_HOST
        yield _case("v6-bare", f"https://{text}/", BAD, verdict)


def _authorities() -> Iterator[Case]:
    userinfo = """
    @ok.lab.example :@ok.lab.example u@ok.lab.example u:p@ok.lab.example ok.lab.example@ ok.lab.example@evil.example
    ok.lab.example:443@127.0.0.1 ok.lab.example%00@127.0.0.1 ok.lab.example@127.0.0.1:443 a@b@ok.lab.example
    ok.lab.example:@[::1] %40@ok.lab.example ok.lab.example;@evil.example ok.lab.example&@evil.example
    """.split()
    for text in userinfo:
        yield _case("userinfo", f"https://{text}/ok.png", DENIED, Verdict.USERINFO)
    for text in ("ok.lab.example?@127.0.0.1", "ok.lab.example#@127.0.0.1", "ok.lab.example/@127.0.0.1/"):
        yield _case("userinfo-after-end", f"https://{text}", BAD, Verdict.BAD_STATUS, zone=_ZONE)
    yield _case("userinfo-in-path", "https://ok.lab.example/ok.png?u@127.0.0.1", OK, Verdict.DELIVERED, zone=_ZONE)


def _characters() -> Iterator[Case]:
    unicode = (
        "１２７.0.0.1 127。0。0。1 127．0．0．1 127｡0｡0｡1 ①②⑦.0.0.1 ⒈⒉.0.0.1 ⓛocalhost locaⓁhost ｌocalhost "
        "ok.lab.example\u200b ok\u2060.lab.example ok\ufeff.lab.example ok.lab.example\u00a0 ok.lab.example\u3000 "
        "оk.lab.example bücher.lab.example ok.lab.example\u2028 ok.lab.example\u0085 ok.lab.exampleﬀ ßok.lab.example "
        "ok\u0338.lab.example 𝟏𝟐𝟕.𝟎.𝟎.𝟏 １０.0.0.1 ok.lab.example／x ok.lab.example＃x ok.lab.example？x "
        "ok.lab.example＠evil.example ok.lab.example：443 ok.lab.example\u2100 ok.lab.example\U0001f600 "
        "٣.0.0.1 ok.lab.example\udcff"
    ).split(" ")
    for text in unicode:
        yield _case("unicode", f"https://{text}/ok.png", BAD, Verdict.BAD_CHARACTER)
    for number in (*range(0x21), 0x5C, 0x7F, 0x80, 0xA0, 0xAD, 0xFF):
        shown = f"{number:#04x}"
        for where, url in (
            ("host", f"https://ok{chr(number)}.lab.example/ok.png"),
            ("path", f"https://ok.lab.example/ok.png{chr(number)}"),
        ):
            yield _case(f"control-{where}", url, BAD, Verdict.BAD_CHARACTER, shown)
    yield _case("control", "https://ok.lab.example/ok.png\n", BAD, Verdict.BAD_CHARACTER, "last-newline")
    yield _case("control", "\thttps://ok.lab.example/ok.png", BAD, Verdict.BAD_CHARACTER, "first-tab")
    yield _case("control", "ht\ntps://ok.lab.example/ok.png", BAD, Verdict.BAD_CHARACTER, "newline-in-scheme")


def _hosts() -> Iterator[Case]:
    for text in "ok.lab.example%2f ok.lab.example%23 %6ck.lab.example ok.lab.example%0d%0a ok%2elab.example".split():
        yield _case("percent", f"https://{text}/ok.png", BAD, Verdict.BAD_HOST)
    for (
        text
    ) in "ok,lab.example ok.lab.example, ok!.lab.example ok$.lab.example ok*.lab.example *.lab.example".split():
        yield _case("sub-delims", f"https://{text}/ok.png", BAD, Verdict.BAD_HOST)
    for (
        text
    ) in 'ok"lab.example <ok.lab.example> {ok}.lab.example ok^.lab.example ok|.lab.example ok`.lab.example'.split():
        yield _case("other-signs", f"https://{text}/", BAD, Verdict.BAD_HOST)
    for text in ("https://", "https:///", "https://?", "https://#", "https:////ok.lab.example/", "https://:443"):
        yield _case("no-host", text, BAD, Verdict.NO_HOST)
    for text in (
        "https:/ok.lab.example/ https:\thttps//ok HTTPS://ok.lab.example/ Https://ok.lab.example/ httpS://a.b".split()
    ):
        yield _case("scheme", text, BAD, Verdict.NOT_HTTPS)
    for text in (
        "http://ok.lab.example/ data:image/png;base64,AAAA blob:https://ok.lab.example/ ftp://ok.lab.example/".split()
    ):
        yield _case("scheme", text, BAD, Verdict.NOT_HTTPS)
    for (
        text
    ) in "url:https://a.b jar:https://a.b!/ dict://a.b:11211/ ldap://a.b/ tftp://a.b/ sftp://a.b netdoc:/etc".split():
        yield _case("scheme", text, BAD, Verdict.NOT_HTTPS)


def _names() -> Iterator[Case]:
    for text in """
    ok.lab.example. ok.lab.example.. ok..lab.example .ok.lab.example . .. -.lab.example ok-.lab.example
    o_k.lab.example _dmarc.lab.example com example ok.lab.example- ok.lab.-example ok.lab.ex-ample ok.lab.1example
    ok.lab.example1 127.0.0.1.a- 0x7f.0.0.1.x_
    """.split():
        yield _case("name", f"https://{text}/ok.png", DENIED, Verdict.BAD_NAME)
    yield _case("name", f"https://{'a' * 64}.lab.example/", DENIED, Verdict.BAD_NAME, "label-64")
    yield _case("name", f"https://{'a.' * 124}example/", BAD, Verdict.BAD_HOST, "254-characters")
    yield _case("name", f"https://{'a.' * 123}example/", DENIED, Verdict.NO_ADDRESS, "253-characters", {})
    yield _case(
        "name",
        f"https://{'a' * 63}.lab.example/ok.png",
        OK,
        Verdict.DELIVERED,
        "label-63",
        {f"{'a' * 63}.lab.example": {"A": [hosts.GOOD]}},
    )
    yield _case("name", "https://OK.Lab.Example/ok.png", OK, Verdict.DELIVERED, "upper-case", _ZONE)
    for text in """
    localhost LOCALHOST a.localhost x.y.local nas.home metadata.google.internal instance-data.ec2.internal a.intranet
    db.private gw.lan x.localdomain x.home.arpa 1.ip6.arpa _x.arpa hidden.onion x.i2p x.alt x.invalid x.test
    kubernetes.default.svc.cluster.local host.docker.internal
    """.split():
        zone = {text.lower(): {"A": [hosts.GOOD]}}
        yield _case("private-name", f"https://{text}/", DENIED, Verdict.PRIVATE_NAME, zone=zone)
    yield _case(
        "name",
        "https://xn--80ak6aa92e.lab.example/ok.png",
        OK,
        Verdict.DELIVERED,
        zone={"xn--80ak6aa92e.lab.example": {"A": [hosts.GOOD]}},
    )
    for text in "22 25 80 442 444 6379 8443 9200 65535".split():
        yield _case("port", f"https://ok.lab.example:{text}/", DENIED, Verdict.FORBIDDEN_PORT, zone=_ZONE)
    for text in "0 00 00443 0443 +443 -443 443x 4_43 0x1bb 65536 65979 4294967739 443: 443:443 %34%34%33".split():
        yield _case("port", f"https://ok.lab.example:{text}/", BAD, Verdict.BAD_PORT)


def _addresses() -> Iterator[Case]:
    """Through DNS; every range of the tables at both ends is a unit test."""
    answers: dict[Verdict, str] = {
        Verdict.RESERVED: "0.0.0.0 0.0.0.1 240.0.0.1 255.255.255.255 :: 4000::1 8000::1 1000::1 3ffe::1",
        Verdict.LOOPBACK: "127.0.0.1 127.0.0.2 127.1.2.3 127.0.6.255 127.0.8.0 127.255.255.255 ::1",
        Verdict.PRIVATE: "10.0.0.0 10.255.255.255 172.16.0.1 192.168.255.255 fc00::1 fdff::1 fd00:ec2::254 fec0::1",
        Verdict.SHARED: "100.64.0.0 100.127.255.255 100.100.100.200",
        Verdict.LINK_LOCAL: "169.254.0.1 169.254.169.254 169.254.169.123 169.254.170.2 fe80::1 febf::1",
        Verdict.PLATFORM: "168.63.129.16 161.26.0.10 166.9.1.1 199.36.153.8 2600:2d00:2:2000::1",
        Verdict.SPECIAL_PURPOSE: "192.0.0.192 198.19.255.255 192.88.99.1 100::1 5f00::1 2001:20::1 2001:1::1",
        Verdict.DOCUMENTATION: "192.0.2.1 198.51.100.7 203.0.113.255 2001:db8::1 3fff:fff::1",
        Verdict.MULTICAST: "224.0.0.251 239.255.255.255 ff02::fb ff0e::1",
        Verdict.CARRIES_IPV4: "::ffff:127.0.0.1 ::ffff:8.8.8.8 ::127.0.0.1 ::ffff:0:127.0.0.1 64:ff9b::127.0.0.1 "
        "64:ff9b::8.8.8.8 64:ff9b:1::1 64:ff9b:1:ffff::1 2002:7f00:1:: 2002:808:808::1 2001::1 2001:0:ffff::1 "
        "2001:470::5efe:a00:1 2600::200:5efe:7f00:1",
    }
    for verdict, text in answers.items():
        for address in text.split():
            kind = "AAAA" if ":" in address else "A"
            zone = {"bad.lab.example": {kind: [address]}}
            yield _case("dns", "https://bad.lab.example/ok.png", DENIED, verdict, address, zone)
            beside = {"bad.lab.example": {"A": [hosts.GOOD], kind: [hosts.GOOD, address][kind == "AAAA" :]}}
            yield _case("dns-beside", "https://bad.lab.example/ok.png", DENIED, verdict, address, beside)


def _dns() -> Iterator[Case]:
    def case(name: str, expect: str, verdict: Verdict, zone: Any) -> Case:
        return _case("zone", "https://a.lab.example/ok.png", expect, verdict, name, zone)

    good, inner = [hosts.GOOD], ["10.1.2.3"]
    chain = {f"c{n}.lab.example": {"CNAME": f"c{n + 1}.lab.example"} for n in range(10)}
    for end, expect, verdict in ((good, OK, Verdict.DELIVERED), (inner, DENIED, Verdict.PRIVATE)):
        zone = {"a.lab.example": {"CNAME": "c0.lab.example"}, **chain, "c10.lab.example": {"A": end}}
        yield case(f"cname-chain-{expect}", expect, verdict, zone)
    loop = {"a.lab.example": {"CNAME": "b.lab.example"}, "b.lab.example": {"CNAME": "a.lab.example"}}
    yield case("cname-loop", DENIED, Verdict.NO_ADDRESS, loop)
    yield case("cname-to-localhost", DENIED, Verdict.NO_ADDRESS, {"a.lab.example": {"CNAME": "localhost"}})
    literal = {"a.lab.example": {"CNAME": "127.0.0.1"}, "127.0.0.1": {"A": ["127.0.0.1"]}}
    yield case("cname-to-literal", DENIED, Verdict.LOOPBACK, literal)
    yield case("cname-nowhere", DENIED, Verdict.NO_ADDRESS, {"a.lab.example": {"CNAME": "b.lab.example"}})
    yield case("silence", DENIED, Verdict.NO_ADDRESS, {"a.lab.example": "drop"})
    yield case("only-aaaa-silent", OK, Verdict.DELIVERED, {"a.lab.example": {"A": good, "drop": ["AAAA"]}})
    yield case("slow-dns", OK, Verdict.DELIVERED, {"a.lab.example": {"A": good, "delay_s": 0.3}})
    yield case("sixteen", OK, Verdict.DELIVERED, {"a.lab.example": {"A": [f"127.0.7.{n}" for n in range(1, 17)]}})
    # More than a datagram holds is cut short to nothing, and nothing is asked by TCP.
    for count, verdict in ((17, Verdict.TOO_MANY_ADDRESSES), (200, Verdict.NO_ADDRESS)):
        zone = {"a.lab.example": {"A": [f"127.0.7.{n}" for n in range(1, count + 1)]}}
        yield case(f"{count}-addresses", DENIED, verdict, zone)
    both = {"A": [f"127.0.7.{n}" for n in range(1, 10)], "AAAA": [f"2600::{n}" for n in range(1, 9)]}
    yield case("seventeen-of-both", DENIED, Verdict.TOO_MANY_ADDRESSES, {"a.lab.example": both})
    yield case("same-address-often", OK, Verdict.DELIVERED, {"a.lab.example": {"A": good * 30}})
    yield case("nothing-listens", BAD, Verdict.UNREACHABLE, {"a.lab.example": {"A": ["127.0.7.9", "127.0.7.99"]}})
    flip = {"a.lab.example": {"A": {"sequence": [good, ["127.0.0.1"]]}}}
    yield _case("rebind", "https://a.lab.example/ok.png", OK, Verdict.DELIVERED, "after-the-query", flip)
    yield _case("rebind", "https://a.lab.example/hops/1", DENIED, Verdict.LOOPBACK, "between-hops", flip)
    late = {"a.lab.example": {"A": {"sequence": [good, good, good, ["169.254.169.254"]]}}}
    yield _case("rebind", "https://a.lab.example/hops/3", DENIED, Verdict.LINK_LOCAL, "at-the-last-hop", late)
    second = {"a.lab.example": {"A": {"sequence": [["127.0.0.1"], good]}}}
    yield _case("rebind", "https://a.lab.example/ok.png", DENIED, Verdict.LOOPBACK, "bad-first", second)


def _redirects() -> Iterator[Case]:
    refused = {
        Verdict.NOT_HTTPS: "http://ok.lab.example/ok.png http://127.0.0.1/ file:///etc/passwd ftp://ok.lab.example/ "
        "javascript:alert(1) data:image/png;base64,AAAA unix:/run/docker.sock gopher://127.0.0.1:6379/_ ws://a.b/ "
        "mailto:a@b https:ok.lab.example/ok.png about:blank https:",
        Verdict.ADDRESS_LITERAL: "https://127.0.0.1/ https://0x7f.1/ https://2130706433/ https://[::1]/ "
        "https://[::ffff:169.254.169.254]/ //127.0.0.1/ //[::1]/ https://[fe80::1%25lo]/ https://1.1.1.1/ //0/ "
        "https://[::1/ //[x/ //[v1.x]]/",
        Verdict.USERINFO: "https://u:p@ok.lab.example/ok.png //ok.lab.example@127.0.0.1/ https://@ok.lab.example/",
        Verdict.PRIVATE_NAME: "https://localhost/ //localhost/ https://metadata.google.internal/ //x.local/",
        Verdict.BAD_NAME: "https://metadata/ //ok.lab.example./ok.png https://intranet1/ //a_b.lab.example/",
        Verdict.FORBIDDEN_PORT: "https://ok.lab.example:22/ //ok.lab.example:6379/ https://ok.lab.example:8443/",
        Verdict.BAD_PORT: "https://ok.lab.example:0443/ https://ok.lab.example:99999/ //ok.lab.example:x/",
        Verdict.NO_HOST: "https:///etc/passwd //?x https://:443/",
        Verdict.BAD_HOST: "https://ok.lab.example%00/ //ok.lab.example;x/ https://*.lab.example/",
        Verdict.BAD_CHARACTER: "\\\\127.0.0.1\\ /\\127.0.0.1/ https:\\\\127.0.0.1 "
        "https://127.0.0.1\\@ok.lab.example/ https://１２７.0.0.1/ https://ⓛocalhost/ /ok\u00e9.png",
    }
    for verdict, text in refused.items():
        for location in text.split(" "):
            yield _redirect(location, DENIED, verdict)
    for text in "https://ok.lab.example/a\tb /o\tk.png o\tk.png /a\x01b /a\x7fb /\u00a0".split(" "):
        yield _redirect(text, DENIED, Verdict.BAD_CHARACTER)
    yield _answer("/to-long", DENIED, Verdict.TOO_LONG)
    for location in "/ok.png ok.png ./ok.png ../ok.png ../../../ok.png ?/../ok.png //cdn.lab.example/ok.png".split():
        yield _redirect(location, OK, Verdict.DELIVERED)
    yield _redirect("HTTPS://OK.LAB.EXAMPLE/ok.png#fragment", OK, Verdict.DELIVERED)
    for host, verdict in (("10.1.2.3", Verdict.PRIVATE), ("127.0.0.1", Verdict.LOOPBACK), ("::1", Verdict.LOOPBACK)):
        zone = {**_ZONE, "in.lab.example": {"AAAA" if ":" in host else "A": [host]}}
        yield _redirect("https://in.lab.example/", DENIED, verdict, f"name-of-{host}", zone)
    yield _redirect("https://none.lab.example/", DENIED, Verdict.NO_ADDRESS, "name-of-nothing")
    for host, verdict in ((hosts.OTHER_NAME, Verdict.BAD_CERTIFICATE), (hosts.PLAIN, Verdict.TLS_FAILED)):
        zone = {**_ZONE, "cdn.lab.example": {"A": [host]}}
        yield _redirect("https://cdn.lab.example/ok.png", BAD, verdict, f"to-{verdict}", zone)
    for status, expect, verdict in (
        *((status, OK, Verdict.DELIVERED) for status in (301, 303, 307, 308)),
        *((status, BAD, Verdict.BAD_STATUS) for status in (300, 304, 305, 306)),
    ):
        yield _answer(f"/to-{status}?%2Fok.png", expect, verdict)
    yield _answer("/to-endless?%2Fok.png", OK, Verdict.DELIVERED)
    yield _answer("/to-cookie?%2Fok.png", OK, Verdict.DELIVERED)
    yield _answer("/emptyloc", DENIED, Verdict.BAD_REDIRECT)
    for path in ("/loop", "/fragment-loop", "/hops/5"):
        yield _answer(path, DENIED, Verdict.TOO_MANY_REDIRECTS)


def _redirect(location: str, expect: str, verdict: Verdict, name: str = "", zone: Any = None) -> Case:
    url = f"https://ok.lab.example/to?{quote(location, safe='')}"
    return _case("redirect", url, expect, verdict, name or location, zone or _ZONE)


def _answer(path: str, expect: str, verdict: Verdict) -> Case:
    return _case("answer", f"https://ok.lab.example{path}", expect, verdict, path, _ZONE)


def _tls() -> Iterator[Case]:
    for name, host, verdict in (
        ("not-yet-valid", hosts.NOT_YET, Verdict.BAD_CERTIFICATE),
        ("expired", hosts.EXPIRED, Verdict.BAD_CERTIFICATE),
        ("unknown-issuer", hosts.UNKNOWN_ISSUER, Verdict.BAD_CERTIFICATE),
        ("other-name", hosts.OTHER_NAME, Verdict.BAD_CERTIFICATE),
        ("cn-only", hosts.COMMON_NAME_ONLY, Verdict.BAD_CERTIFICATE),
        ("address-only", hosts.ADDRESS_ONLY, Verdict.BAD_CERTIFICATE),
        ("wildcard-over-two-labels", hosts.TOO_WIDE, Verdict.BAD_CERTIFICATE),
        ("closes-at-once", hosts.CLOSES, Verdict.TLS_FAILED),
        ("slow-handshake", hosts.SLOW_TLS, Verdict.UNREACHABLE),
        ("tls11", hosts.TLS11, Verdict.TLS_FAILED),
    ):
        zone = {f"{name if host != hosts.COMMON_NAME_ONLY else 'cn-only'}.lab.example": {"A": [host]}}
        yield _case("tls", f"https://{name}.lab.example/ok.png", BAD, verdict, name, zone)
    deep = {"a.b.lab.example": {"A": [hosts.GOOD]}}
    yield _case("tls", "https://a.b.lab.example/ok.png", BAD, Verdict.BAD_CERTIFICATE, "deep-name", deep)


def _answers() -> Iterator[Case]:
    outcomes: dict[tuple[str, Verdict], str] = {
        (OK, Verdict.DELIVERED): "eof-ok 1xx-few http10 trailers identity text-png exact exact-chunked second-later "
        "length-cut",
        (BAD, Verdict.TOO_LARGE): "big-cl endless endless-eof over",
        (BAD, Verdict.MALFORMED): "two-cl cl-list cl-te te-cl te-gzip te-twice cl-negative cl-plus cl-hex cl-huge "
        "cl-empty cl-under long two-answers http09 http10-te http20 http3digits "
        "nul-header space-colon no-colon junk smtp "
        "http2 bad-chunk negative-chunk huge-chunk chunk-long 101 empty-lines cr-only",
        (BAD, Verdict.INCOMPLETE): "rst cl-short chunk-no-end eof-cut",
        (BAD, Verdict.TOO_WORDY): "many-headers huge-header endless-headers endless-header endless-folds 1xx-flood "
        "many-1xx chunk-ext tiny-chunks trailer-bomb chunk-exts",
        (BAD, Verdict.TOO_SLOW): "slow-head slow-body slow-headers 1xx-slow",
        (BAD, Verdict.STALLED): "silent stall",
        (BAD, Verdict.ENCODED): "gzip-bomb gzip deflate br twice-encoded",
        (BAD, Verdict.NOT_AN_IMAGE): "svg html short-text empty gzip-unsaid endless-text",
        (BAD, Verdict.BAD_STATUS): "201 203 204 206 400 401 404 407 410 418 429 500 503 status-999 refresh",
    }
    for (expect, verdict), paths in outcomes.items():
        for path in paths.split():
            yield _answer(f"/{path}", expect, verdict)


def _floods() -> Iterator[Case]:
    zone = {"flood.lab.example": {"A": [hosts.FLOOD]}}
    for path in BURSTS:
        verdict = (
            Verdict.INCOMPLETE if path in ("/empty-records", "/warnings") else Verdict.TOO_WORDY
        )  # OpenSSL ends it
        yield _case("flood", f"https://flood.lab.example{path}", BAD, verdict, path, zone)
    for name in PLAIN_FLOODS:
        zone = {"flood.lab.example": {"A": [hosts.PLAIN_FLOOD_HOSTS[name]]}}
        yield _case("flood", "https://flood.lab.example/", BAD, Verdict.TLS_FAILED, name, zone)


def more_cases() -> list[Case]:
    """All of them; names are unique."""
    assert LARGEST == 10_485_760
    cases = [
        case
        for make in (
            _literals,
            _authorities,
            _characters,
            _hosts,
            _names,
            _addresses,
            _dns,
            _redirects,
            _tls,
            _answers,
            _floods,
        )
        for case in make()
    ]
    for number, case in enumerate(cases):
        case["name"] = f"{case['name']}-{number}"
    return cases
