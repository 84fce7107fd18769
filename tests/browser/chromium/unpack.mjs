// node unpack.mjs PACKED FILE: Python's own library has no Brotli, and Node has.
import { createReadStream, createWriteStream } from "node:fs";
import { pipeline } from "node:stream/promises";
import { createBrotliDecompress } from "node:zlib";

const [packed, file] = process.argv.slice(2);
await pipeline(createReadStream(packed), createBrotliDecompress(), createWriteStream(file));
