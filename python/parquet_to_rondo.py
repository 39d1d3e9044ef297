#!/usr/bin/env python3
"""Makes what rondo reads of Parquet files, a batch of rows at a time. Needs pyarrow.

    parquet_to_rondo.py FILE... -o texts.jsonl --text COLUMN           JSON lines, for rondo tokenize --documents jsonl
    parquet_to_rondo.py FILE... -o FOLDER --image COLUMN --label COLUMN    tar files, for --data-kind webdataset
    parquet_to_rondo.py FILE... -o table.csv [--columns A,B]           a table, for --data-kind csv or regression

An image column holds files' bytes, or {bytes, path} as Hugging Face's data sets have them.
"""
import argparse
import csv
import io
import json
import pathlib
import sys
import tarfile

import pyarrow.parquet


def rows(files, columns):
    for name in files:
        for batch in pyarrow.parquet.ParquetFile(name).iter_batches(batch_size=1024, columns=columns):
            yield from batch.to_pylist()


def write_texts(files, output, column):
    with open(output, "x", encoding="utf-8") as lines:
        for row in rows(files, [column]):
            if row[column]:
                lines.write(json.dumps({"text": row[column]}, ensure_ascii=False) + "\n")


def write_images(files, folder, image, label, per_shard):
    pathlib.Path(folder).mkdir(parents=True)
    shard = None
    for number, row in enumerate(rows(files, [image, label])):
        if number % per_shard == 0:
            if shard:
                shard.close()
            shard = tarfile.open(pathlib.Path(folder) / f"train-{number // per_shard:05d}.tar", "w", format=tarfile.USTAR_FORMAT)
        content = row[image]["bytes"] if isinstance(row[image], dict) else row[image]
        ending = "png" if content.startswith(b"\x89PNG") else "jpg"
        for name, data in ((ending, content), ("cls", str(int(row[label])).encode())):
            member = tarfile.TarInfo(f"{number:09d}.{name}")
            member.size = len(data)
            shard.addfile(member, io.BytesIO(data))
    if shard:
        shard.close()


def write_table(files, output, columns):
    with open(output, "x", newline="", encoding="utf-8") as table:
        writer = None
        for row in rows(files, columns):
            if writer is None:
                writer = csv.writer(table)
                writer.writerow(row)
            writer.writerow(row.values())


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("-o", "--output", required=True, help="not there yet")
    parser.add_argument("--text", metavar="COLUMN", help="write JSON lines of this column")
    parser.add_argument("--image", metavar="COLUMN", help="write tar files of this column")
    parser.add_argument("--label", metavar="COLUMN", help="with --image: the class, a number")
    parser.add_argument("--images-per-shard", type=int, default=10_000, metavar="N")
    parser.add_argument("--columns", metavar="A,B", help="columns of a table; default: all")
    flags = parser.parse_args(arguments)
    if flags.text:
        write_texts(flags.files, flags.output, flags.text)
    elif flags.image:
        if not flags.label:
            parser.error("--image needs --label")
        write_images(flags.files, flags.output, flags.image, flags.label, flags.images_per_shard)
    else:
        write_table(flags.files, flags.output, flags.columns.split(",") if flags.columns else None)


if __name__ == "__main__":
    main(sys.argv[1:])
