"""`hanji data`: files as FFCV lays them out, written and read here without hanji's own code."""
import io
import json
import os
import pty
import signal
import struct
import subprocess
import tarfile
import time
import unittest

from command import HANJI, CommandTest

PAGE = 2 << 20
INT, IMAGE, BYTES = 1, 2, 3


def ffcv_file(samples, page=PAGE):
    """A .beton of (jpeg stream, bytes, label) as FFCV writes one: images, bytes and labels in one page."""
    fields = [(IMAGE, b"image"), (BYTES, b"extra"), (INT, b"label")]
    records_begin = 24 + 1041 * len(fields)
    heap_begin = -(-(records_begin + 40 * len(samples)) // page) * page
    records, heap, table = b"", b"", b""
    for sample, (stream, extra, label) in enumerate(samples):
        pointers = []
        for value in (stream, extra):
            pointers.append(heap_begin + len(heap))
            table += struct.pack("<3Q", sample, pointers[-1], len(value))
            heap += value
        # numpy aligns the int at 8: 13 + 16 bytes, 3 of padding.
        records += struct.pack("<BHHQQQ3xq", 0, 500, 375, pointers[0], pointers[1], len(extra), label)
    head = struct.pack("<HHIQQ", 2, len(fields), page, len(samples), heap_begin + page)
    head += b"".join(struct.pack("<B16s1024x", kind, name) for kind, name in fields) + records
    return head.ljust(heap_begin, b"\0") + heap.ljust(page, b"\0") + table


def read_as_ffcv(content):
    """(image as RGB rows, label) of each sample, by FFCV's look-up: sizes by pointer from the table."""
    version, num_fields, page, num_samples, table = struct.unpack_from("<HHIQQ", content)
    assert version == 2 and num_fields == 2 and page >= PAGE and (len(content) - table) % 24 == 0
    sizes = {pointer: size for _, pointer, size in struct.iter_unpack("<3Q", content[table:])}
    for sample in range(num_samples):
        at = 24 + 2 * 1041 + 24 * sample
        mode, width, height, pointer, label = struct.unpack_from("<BHHQ3xq", content, at)
        assert mode == 1 and sizes[pointer] == 3 * width * height
        assert pointer // page == (pointer + sizes[pointer] - 1) // page
        yield content[pointer:pointer + sizes[pointer]], label


def npy_file(dtype, shape, content):
    """As numpy.save() writes it."""
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header.encode() + content


class Data(CommandTest):
    def write(self, content):
        (self.folder / "x.beton").write_bytes(content)
        return "x.beton"

    def mistakes(self, content, expect=3):
        return json.loads(self.hanji("data", "verify", "--json", self.write(content), expect=expect).stdout)["mistakes"]

    def test_a_file_of_ffcv_is_described_and_verified(self):
        samples = [(b"stream" * (i + 1), b"x" * i, 7 - i) for i in range(5)]
        name = self.write(ffcv_file(samples))
        info = json.loads(self.hanji("data", "info", "--json", name).stdout)
        self.assertEqual([(field["name"], field["type"]) for field in info["fields"]],
                         [("image", "rgb_image"), ("extra", "bytes"), ("label", "int")])
        self.assertEqual((info["samples"], info["records"]["bytes"], info["checksums"]), (5, 40, False))
        used = sum(len(stream) + len(extra) for stream, extra, _ in samples)
        self.assertEqual(info["pages"], [{"allocations": 10, "bytes": used}])
        self.assertIn("bounds; the file has no checksums", self.hanji("data", "verify", name).stdout)

    def test_a_row_of_the_table_that_is_no_value_is_named(self):
        content = bytearray(ffcv_file([(b"stream", b"abc", 1), (b"other", b"def", 2)]))
        content[-24 * 2 + 16] = 99  # the size of sample 1's stream
        found = self.mistakes(content)
        self.assertEqual({one["sample"] for one in found}, {1})
        content = ffcv_file([(b"stream", b"abc", 1)])
        (one,) = self.mistakes(content[:-24])
        self.assertEqual((one["page"], one["sample"]), (0, 0))
        self.assertIn("'extra': the allocation table has no row", one["message"])

    def test_what_cannot_be_opened_is_one_mistake(self):
        whole = ffcv_file([(b"stream", b"abc", 1)])
        unfinished = whole[:16] + bytes(8) + whole[24:]
        for content, words in ((unfinished, "the writer did not finish"), (whole[:-1], "the file was cut"),
                               (whole + b"stray", "or bytes were added"), (b"", "0 bytes")):
            (one,) = self.mistakes(content)
            self.assertIn(words, one["message"])
            self.assertNotIn("page", one)
        done = self.hanji("data", "info", self.write(whole[:24] + b"\xff" + whole[25:]), expect=2)
        self.assertIn("'image' has a custom type (255)", done.stderr)

    def test_a_made_file_is_the_same_each_time_and_as_ffcv_reads_it(self):
        for name in ("a", "b"):
            self.hanji("data", "make", "--generated", 23, "--size", 16, "--classes", 3, "--out", name)
        content = (self.folder / "a").read_bytes()
        self.assertEqual(content, (self.folder / "b").read_bytes())
        samples = list(read_as_ffcv(content))
        self.assertEqual([label for _, label in samples], [i % 3 for i in range(23)])
        self.assertEqual(len({image for image, _ in samples}), 23)
        self.assertIn("23 samples in 1 page are good (checksums", self.hanji("data", "verify", "a").stdout)
        done = self.hanji("data", "make", "--generated", 5, "--out", "a", expect=2)
        self.assertIn("exists", done.stderr)

    def test_binaries_of_mnist_become_a_file(self):
        (self.folder / "images").write_bytes(struct.pack(">4I", 0x803, 2, 2, 1) + b"abcd")
        (self.folder / "labels").write_bytes(struct.pack(">2I", 0x801, 2) + b"\x07\x01")
        done = self.hanji("data", "make", "--binary", "images", "--binary", "labels", "--out", "x.beton")
        self.assertEqual(done.stdout, "2 samples -> x.beton\n")
        self.assertEqual(list(read_as_ffcv((self.folder / "x.beton").read_bytes())), [(b"aaabbb", 7), (b"cccddd", 1)])
        done = self.hanji("data", "make", "--binary", "images", "--out", "y.beton", expect=2)
        self.assertIn("1 IDX files of images and 0 of labels", done.stderr)

    def test_a_folder_of_photos_keeps_their_bytes(self):
        photos = {f"photos/{name}.jpg": bytes.fromhex("ffd8ffc000080800010002") + b"\x03" + name.encode()
                  for name in ("dog/1", "cat/2", "cat/1")}
        for name, content in photos.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_bytes(content)
        done = self.hanji("data", "make", "--folder", "photos", "--out", "x.beton")
        self.assertEqual(done.stdout, "3 samples -> x.beton\n")
        self.assertEqual(done.stderr, "", "no progress line without a terminal")
        content = (self.folder / "x.beton").read_bytes()
        self.assertEqual([content[at:at + size] for _, at, size in struct.iter_unpack(
            "<3Q", content[struct.unpack_from("<Q", content, 16)[0]:])], [photos[name] for name in sorted(photos)])
        info = json.loads(self.hanji("data", "info", "--json", "x.beton").stdout)
        self.assertEqual(info["provenance"]["classes"], ["cat", "dog"])
        (self.folder / "photos/cat/notes.txt").write_text("notes")
        done = self.hanji("data", "make", "--folder", "photos", "--out", "y.beton", expect=3)
        self.assertIn("photos/cat/notes.txt: no JPEG", done.stderr)
        self.assertFalse((self.folder / "y.beton").exists())
        done = self.hanji("data", "make", "--folder", "photos", "--size", 32, "--out", "y.beton", expect=2)
        self.assertIn("--size belongs to --generated", done.stderr)
        self.assertIn("nothing to make", self.hanji("data", "make", "--out", "y.beton", expect=2).stderr)

    def test_shards_tables_arrays_and_tokens_become_files(self):
        with tarfile.open(self.folder / "0.tar", "w") as shard:
            for name, content in (("a/1.txt", b"first"), ("a/1.cls", b"4"), ("a/2.cls", b"5"), ("a/2.txt", b"second")):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                shard.addfile(member, io.BytesIO(content))
        (self.folder / "t.csv").write_text("id,score,name\n1,0.5,x\n2,3,y\n3,1e3,z\n")
        (self.folder / "rows.npy").write_bytes(npy_file("<f4", "(4, 3)", struct.pack("<12f", *range(12))))
        (self.folder / "label.npy").write_bytes(npy_file("<i8", "(4,)", struct.pack("<4q", 3, 1, 2, 0)))
        (self.folder / "ids.bin").write_bytes(struct.pack("<100H", *range(100)))
        (self.folder / "text.txt").write_text("abcab" * 20)
        made = {
            "--tar": (["0.tar"], 2, [("txt", "bytes"), ("cls", "int")]),
            "--csv": (["t.csv"], 3, [("id", "int"), ("score", "float"), ("name", "bytes")]),
            "--npy": (["rows.npy", "--npy", "y=label.npy"], 4, [("rows", "ndarray"), ("y", "int")]),
            "--tokens": (["ids.bin", "--length", 9], 11, [("tokens", "ndarray")]),
            "--text": (["text.txt", "--length", 9], 11, [("tokens", "ndarray")]),
        }
        for option, (arguments, count, fields) in made.items():
            with self.subTest(option):
                done = self.hanji("data", "make", option, *arguments, "--out", option[2:])
                self.assertEqual(done.stdout, f"{count} samples -> {option[2:]}\n")
                info = json.loads(self.hanji("data", "info", "--json", option[2:]).stdout)
                self.assertEqual([(field["name"], field["type"]) for field in info["fields"]], fields)
                self.hanji("data", "verify", option[2:])
        self.assertEqual(info["provenance"]["vocabulary"], {"kind": "char", "characters": "abc"})
        done = self.hanji("data", "make", "--csv", "t.csv", "--tar", "0.tar", "--out", "z", expect=2)
        self.assertIn("--tar and --csv: a file is made of one source", done.stderr)

    def test_an_interrupted_make_continues_and_ends_in_the_same_bytes(self):
        command = ["data", "make", "--generated", 2000, "--size", 96, "--out"]
        self.hanji(*command, "whole", "--threads", 1)
        running = subprocess.Popen([HANJI, *map(str, command), "x", "--threads", "2"], cwd=self.folder, text=True,
                                   env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        part, journal = self.folder / ".x.part", self.folder / ".x.part.journal"
        while running.poll() is None and not (journal.exists() and journal.stat().st_size > 16):
            time.sleep(0.001)
        running.send_signal(signal.SIGINT)
        stdout, stderr = running.communicate(timeout=60)
        if running.returncode == 130:  # a fast machine may have ended before
            self.assertIn("of 2000; the same command continues", stderr)
            self.assertTrue(part.exists() and not (self.folder / "x").exists())
            other = self.hanji("data", "make", "--generated", 1999, "--size", 96, "--out", "x", expect=2)
            self.assertIn("an interrupted file of other samples or options", other.stderr)
            done = self.hanji(*command, "x", "--threads", 3)
            self.assertRegex(done.stdout, r"2000 samples -> x \(\d+ of an interrupted make\)")
        self.assertEqual((self.folder / "x").read_bytes(), (self.folder / "whole").read_bytes())
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["whole", "x"])

    def refuse(self, *arguments, code=2):
        """All lines of an error that leaves nothing behind."""
        before = sorted(self.folder.iterdir())
        done = self.hanji("data", *arguments, expect=code)
        self.assertEqual(sorted(self.folder.iterdir()), before)
        self.assertEqual(done.stdout, "")
        return [line.removeprefix("hanji: ") for line in done.stderr.splitlines()]

    def test_mistakes_in_options_come_all_at_once(self):
        (self.folder / "there").write_text("x")
        self.assertEqual(self.refuse("make", "--generated", 0, "--csv", "t.csv", "--out", "there"), [
            "--csv and --generated: a file is made of one source",
            "there: exists; name another file with --out, or remove it"])
        lines = self.refuse("make", "--csv", "none.csv", "--size", 8, "--length", 4, "--vocabulary", "byte",
                            "--out", "there")
        self.assertEqual(lines[:-1], ["--length belongs to --tokens; leave it out of --csv",
                                      "--vocabulary belongs to --text; leave it out of --csv",
                                      "--size belongs to --generated; leave it out of --csv",
                                      "there: exists; name another file with --out, or remove it"])
        self.assertIn("none.csv", lines[-1])
        (self.folder / "ids").write_bytes(struct.pack("<99H", *range(99)))
        self.assertIn("data.format (hanji data make: --format)", self.refuse(
            "make", "--tokens", "ids", "--format", "llmc", "--length", 8, "--out", "y", code=3)[0])
        self.hanji("data", "make", "--tokens", "ids", "--format", "nanogpt", "--length", 8, "--out", "y")
        self.assertEqual(self.refuse("make", "--generated", 3, "--out", ""), ["write '': this names no file; add a name"])

    def test_options_without_an_effect_on_how_images_are_stored_are_refused(self):
        self.hanji("data", "make", "--generated", 4, "--size", 8, "--out", "x")
        self.assertEqual(self.refuse("convert", "x", "--images", "raw", "--quality", 50, "--jpeg-share", 0.3,
                                     "--smart-bytes", 5, "--seed", 2, "--out", "x"), [
            "x: exists; name another with --out or --to, or remove it",
            "--quality is of JPEGs, and --images raw stores none; leave it out, or set --images",
            "--jpeg-share is of --images proportion; leave it out, or set --images",
            "--seed is of --images proportion; leave it out, or set --images",
            "--smart-bytes is of --images smart; leave it out, or set --images"])
        self.assertEqual(len(self.refuse("convert", "x", "--jpeg-share", 0.3, "--out", "y")), 1)
        self.assertEqual(self.refuse("convert", "x", "--images", "raw", "--row-index", "--out", "y"),
                         ["--row-index is of JPEGs, and --images raw stores none; leave it out, or set --images"])
        for one in (["jpg", "--quality", 50, "--row-index"], ["proportion", "--jpeg-share", 0.3, "--seed", 2, "--quality", 50],
                    ["smart", "--smart-bytes", 5], ["raw", "--max-resolution", 4]):
            self.hanji("data", "convert", "x", "--images", *one, "--out", one[0])

    def test_an_interrupt_before_the_first_sample_ends_at_once_and_leaves_nothing(self):
        with open(self.folder / "t.csv", "w") as table:
            table.write("image,label\n" + "no/such/folder/of/photos.jpg,1\n" * 1_000_000)
        self.hanji("data", "make", "--text", "t.csv", "--length", 32, "--vocabulary", "byte", "--out", "t.beton")
        for command in (["make", "--csv", "t.csv", "--image-column", "image"],
                        ["convert", "t.beton"]):
            for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 75)):
                running = subprocess.Popen([HANJI, "data", *command, "--out", "x"], cwd=self.folder, text=True,
                                           env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                while not self.catches(running.pid, number):
                    time.sleep(0.001)
                running.send_signal(number)
                stdout, stderr = running.communicate(timeout=60)
                self.assertEqual((running.returncode, stdout), (code, ""), stderr)
                self.assertIn("nothing was written", stderr)
                self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["t.beton", "t.csv"])

    def test_names_that_are_no_utf8_keep_their_bytes_in_json(self):
        name = os.fsdecode(b"x\xff.beton")
        self.hanji("data", "make", "--generated", 8, "--size", 8, "--out", "x")
        (self.folder / "x").rename(self.folder / name)
        for verb in (["info"], ["verify"], ["bench", "--threads", 1]):
            self.assertEqual(json.loads(self.hanji("data", *verb, "--json", name).stdout)["file"], "x\0ff.beton")

    def test_what_the_user_can_mend_about_files_is_no_internal_error(self):
        self.hanji("data", "make", "--generated", 4, "--size", 8, "--out", "x")
        (self.folder / "d").mkdir()
        make = ["make", "--generated", 4, "--size", 8, "--out"]
        for arguments, words in (([*make, "x/y"], "write x/y: Not a directory"),
                                 ([*make, "none/y"], "write none/y: there is no folder none; make it"),
                                 ([*make, "y" * 256], "y: File name too long"),
                                 (["show", "x", "--out", "d"], "write d: Is a directory"),
                                 (["info", "d"], "d: no regular file"),
                                 (["verify", "none"], "none: No such file"),
                                 (["convert", "x", "--to", "x/y"], "x/y")):
            with self.subTest(words):
                lines = self.refuse(*arguments)
                self.assertEqual(len(lines), 1)
                self.assertIn(words, lines[0])
        limited = subprocess.run(["prlimit", "--fsize=1000", HANJI, "data", *map(str, make), "y"], cwd=self.folder,
                                 env=self.environment(), text=True, capture_output=True, timeout=60)
        self.assertEqual(limited.returncode, 2)
        self.assertIn("write y: File too large; raise the limit", limited.stderr)

    def test_verify_goes_on_from_a_page(self):
        self.hanji("data", "make", "--generated", 400, "--size", 96, "--out", "x")
        content = bytearray((self.folder / "x").read_bytes())
        info = json.loads(self.hanji("data", "info", "--json", "x").stdout)
        self.assertEqual(len(info["pages"]), 2)
        content[info["heap"]["begin"] + 5] ^= 1
        (self.folder / "x").write_bytes(content)
        self.assertIn("page 0, sample 0", self.hanji("data", "verify", "x", expect=3).stdout)
        done = self.hanji("data", "verify", "x", "--from-page", 1)
        self.assertIn("pages before 1 were not read", done.stderr)
        for page in (2, 100):
            done = self.hanji("data", "verify", "x", "--from-page", page, expect=2)
            self.assertIn(f"--from-page is {page}, but x has pages 0 to 1", done.stderr)

    def test_a_terminal_shows_how_much_is_done_at_which_rate(self):
        terminal, stderr = pty.openpty()
        done = subprocess.run([HANJI, "data", "make", "--generated", "300", "--size", "32", "--out", "x"],
                              cwd=self.folder, env=self.environment(), stderr=stderr, capture_output=False,
                              stdout=subprocess.DEVNULL, timeout=120)
        os.close(stderr)
        self.assertEqual(done.returncode, 0)
        shown = os.read(terminal, 1 << 16).decode()
        os.close(terminal)
        self.assertRegex(shown, r"300 of 300 samples, 100 %, [0-9.]+( k)?/s, 0 s left\r?\n$")

    def test_a_sheet_shows_the_images_and_what_a_model_sees(self):
        self.hanji("data", "make", "--generated", 20, "--size", 32, "--out", "x.beton")
        sizes = {}
        for name, more in (("plain", ["--cell", 40, "--columns", 5]),
                           ("seen", ["--augmented", "--columns", 4, "--count", 3, "--set", "data.image_size=24",
                                     "--set", "data.stage=random_resized_crop, flip, normalise"])):
            done = self.hanji("data", "show", "x.beton", "--out", f"{name}.png", *more)
            self.assertEqual(done.stdout, f"x.beton -> {name}.png\n")
            content = (self.folder / f"{name}.png").read_bytes()
            self.assertEqual(content[:8], b"\x89PNG\r\n\x1a\n")
            sizes[name] = struct.unpack(">II", content[16:24])
        self.assertEqual(sizes, {"plain": (5 * 44 + 4, 4 * 56 + 4), "seen": (4 * 100 + 4, 3 * 112 + 4)})
        done = self.hanji("data", "show", "x.beton", "--out", "y.png", "--set", "data.image_size=24", expect=2)
        self.assertIn("belong to --augmented", done.stderr)
        done = self.hanji("data", "show", "x.beton", "--out", "y.png", "--augmented", "--set", "data.stage=blur", expect=2)
        self.assertIn("blur", done.stderr)
        # A sheet replaces a sheet, and not the file that it is of.
        self.hanji("data", "show", "x.beton", "--out", "plain.png")
        content = (self.folder / "x.beton").read_bytes()
        done = self.hanji("data", "show", "x.beton", "--out", "x.beton", expect=2)
        self.assertEqual(done.stderr, "hanji: x.beton: exists and is no PNG; name another file with --out\n")
        self.assertEqual((self.folder / "x.beton").read_bytes(), content)

    def test_converted_images_train_and_become_files_that_make_a_file_again(self):
        self.hanji("data", "make", "--generated", 60, "--size", 32, "--classes", 3, "--out", "x.beton")
        done = self.hanji("data", "convert", "x.beton", "--images", "jpg", "--quality", 95, "--out", "y.beton")
        self.assertEqual(done.stdout, "60 samples -> y.beton\n")
        self.hanji("data", "convert", "y.beton", "--row-index", "--out", "r.beton")
        losses = set()
        for file in ("y.beton", "r.beton"):
            self.hanji("data", "verify", file)
            self.hanji("train", "--steps", 2, "--ranks", 1, "--out", f"run-{file}", "--set", "model.preset=resnet-tiny",
                       "--set", f"data.files={file}", "--set", "model.width=8", "--set", "data.image_size=16",
                       "--set", "train.global_batch=16", "--set", "train.evaluate_every=0")
            losses.add(self.read_json(f"run-{file}", "summary.json")["train_loss"])
        self.assertEqual(len(losses), 1, "an index of rows changes no pixel")
        self.assertEqual(self.hanji("data", "convert", "y.beton", "--to", "photos").stdout, "60 images -> photos\n")
        self.assertEqual(len(list((self.folder / "photos").glob("[012]/*.jpg"))), 60)
        self.hanji("data", "make", "--folder", "photos", "--out", "z.beton")
        self.assertEqual(json.loads(self.hanji("data", "info", "--json", "z.beton").stdout)["samples"], 60)
        self.hanji("data", "convert", "x.beton", "--to", "raw")
        self.hanji("data", "make", "--folder", "raw", "--out", "w.beton")
        self.hanji("data", "convert", "w.beton", "--to", "again")
        pngs = sorted((self.folder / "raw").rglob("*.png"))
        self.assertEqual(len(pngs), 60)
        again = {int(one.stem): one.read_bytes() for one in (self.folder / "again").rglob("*.png")}
        self.assertEqual([again[number] for number in range(60)], [one.read_bytes() for one in pngs])
        pngs[7].write_bytes(pngs[7].read_bytes()[:-40])
        done = self.hanji("data", "make", "--folder", "raw", "--out", "cut.beton", expect=3)
        self.assertIn(str(pngs[7].relative_to(self.folder)) + ": libpng:", done.stderr)
        done = self.hanji("data", "convert", "y.beton", "--to", "other", "--quality", 5, expect=2)
        self.assertIn("--quality belongs to --out", done.stderr)

    def test_the_bench_names_what_bounds_a_loader(self):
        self.hanji("data", "make", "--generated", 80, "--size", 32, "--out", "x.beton")
        self.hanji("data", "convert", "x.beton", "--images", "jpg", "--out", "y.beton")
        done = json.loads(self.hanji("data", "bench", "y.beton", "--json", "--threads", 2).stdout)
        for name in ("read", "decoded", "cropped", "made", "loaded"):
            self.assertGreater(done["per_second"][name], 0, name)
        self.assertGreater(done["times_decode"], 0)
        for name in ("cold_loaded", "cold_read"):
            self.assertTrue(done["per_second"][name] or done["why_not_cold"], name)
        self.assertIn("bound by", self.hanji("data", "bench", "x.beton").stdout)

    def test_every_way_to_read_gives_the_same_bytes_of_an_epoch(self):
        self.hanji("data", "make", "--generated", 40, "--size", 24, "--out", "x.beton")
        job = ["data", "hash", "--data", "x.beton", "--epochs", 2, "--set", "train.global_batch=16",
               "--set", "data.image_size=16", "--set", "data.stage=random_resized_crop, flip, normalise, mixup"]
        done = json.loads(self.hanji(*job, "--json").stdout)
        self.assertEqual([(one["ranks"], one["workers"], one["prefetch"]) for one in done["ways"]],
                         [(ranks, *reading) for ranks in (1, 2, 3) for reading in ((0, 0), (2, 1), (2, 4))])
        (epochs,) = {tuple(one["epochs"]) for one in done["ways"]}
        self.assertEqual((len(set(epochs)), done["equal"], done["first_step_that_differs"]), (2, True, None))
        self.assertEqual({one["samples"] for one in done["ways"]}, {72})
        self.assertIn("the same bytes in all 9 ways", self.hanji(*job).stdout)
        other = json.loads(self.hanji(*job, "--json", "--seed", 2).stdout)
        self.assertNotEqual(other["ways"][0]["epochs"], list(epochs))
        cached = json.loads(self.hanji(*job, "--json", "--set", "data.cache=process").stdout)
        self.assertEqual({tuple(one["epochs"]) for one in cached["ways"]}, {epochs})
        done = self.hanji("data", "hash", "--ranks", "0", "--workers", "x", expect=2)
        self.assertIn("--ranks 0: '0' is no number from 1 to 1024", done.stderr)
        self.assertIn("--workers x: 'x' is no number", done.stderr)
        self.assertIn("17 ranks for a global batch of 16", self.hanji(*job, "--ranks", 17, expect=2).stderr)

    def test_a_flipped_byte_is_reported_with_its_page_and_sample(self):
        self.hanji("data", "make", "--generated", 9, "--size", 16, "--out", "a")
        content = (self.folder / "a").read_bytes()
        info = json.loads(self.hanji("data", "info", "--json", "a").stdout)
        for at, page, sample in ((info["heap"]["begin"] + 4 * 768 + 5, 0, 4),
                                 (info["records"]["begin"] + 6 * 24 + 20, None, 6)):
            damaged = content[:at] + bytes([content[at] ^ 1]) + content[at + 1:]
            found = [(one.get("page"), one.get("sample")) for one in self.mistakes(damaged)]
            self.assertIn((page, sample), found)
            self.assertLessEqual({other for _, other in found}, {None, sample})
        for at in (3, 30, info["table"]["begin"] - 60, info["table"]["begin"] - 1):
            self.assertEqual(len(self.mistakes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1:])), 1, at)
        at = info["table"]["begin"] + 24 * 7 + 8
        found = self.mistakes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1:])
        self.assertEqual({one["sample"] for one in found}, {7})


if __name__ == "__main__":
    unittest.main(verbosity=2)
