#!/usr/bin/env python3
"""Unpacks .deb files into a folder that programs can be built against, where nothing can be installed.

    tools/unpack_debs.py FOLDER_OF_DEBS ROOT

Needs the standard library, or dpkg-deb where Python was built without the compression of a file. ROOT is
made anew. It holds programs, libraries and headers (usr/bin, usr/lib, usr/include, *.pc), changed
where they would name the system's own:
  headers of one processor lie among the others, as no compiler looks for them elsewhere;
  links lead to files of ROOT, and the prefix of a .pc file is ROOT/usr;
  programs are scripts in usr/bin, which start those of ROOT/programs with the libraries of ROOT.
Exit code 1, with the file and the reason, if one cannot be unpacked.
"""
import io
import os
import pathlib
import posixpath
import re
import shutil
import subprocess
import sys
import tarfile

KEPT = re.compile(r"(programs|usr/lib|usr/include|usr/share/pkgconfig)/")


def files_tar(deb):
    """The archive of a package's files."""
    with open(deb, "rb") as file:
        if file.read(8) != b"!<arch>\n":
            raise ValueError("is no .deb file, or was cut")
        while header := file.read(60):
            size = int(header[48:58])
            data = file.read(size + size % 2)[:size]
            if header.startswith(b"data.tar"):
                try:
                    return tarfile.open(fileobj=io.BytesIO(data))
                except tarfile.ReadError:
                    return tarfile.open(fileobj=io.BytesIO(
                        subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], check=True, stdout=subprocess.PIPE).stdout))
    raise ValueError("has no data.tar")


def place(path):
    """Where a file of a package, by its path on a Debian system, lies under the root."""
    path = posixpath.normpath("/" + path).lstrip("/")
    path = re.sub(r"^(usr/)?bin/", "programs/", re.sub(r"^lib/", "usr/lib/", path))
    return re.sub(r"^usr/include/[^/]+-linux-gnu[^/]*/", "usr/include/", path)


def unpack(deb, root):
    with files_tar(deb) as tar:
        for member in tar:
            to = place(member.name)
            if not KEPT.match(to) or not (member.isfile() or member.issym()):
                continue
            target = root / to
            target.parent.mkdir(parents=True, exist_ok=True)
            if member.issym():
                leads_to = place(posixpath.join(posixpath.dirname(member.name), member.linkname))
                os.symlink(posixpath.relpath(leads_to, posixpath.dirname(to)), target)
            else:
                target.write_bytes(tar.extractfile(member).read())
                target.chmod(0o755 if member.mode & 0o100 else 0o644)


def library_folders(root):
    return sorted({file.parent for file in (root / "usr/lib").rglob("*.so*")})


def settle(root):
    """Makes what was unpacked name this root."""
    for file in root.rglob("*.pc"):
        file.write_text(re.sub(r"(?<![a-z0-9_/}.-])/usr(?=/|$)", f"{root}/usr", file.read_text(), flags=re.M))
    (root / "usr/bin").mkdir()
    folders = ":".join(map(str, library_folders(root)))
    for program in sorted((root / "programs").glob("*")):
        script = root / "usr/bin" / program.name
        script.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH="{folders}" exec "{program}" "$@"\n')
        script.chmod(0o755)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    debs = sorted(pathlib.Path(sys.argv[1]).glob("*.deb"))
    root = pathlib.Path(sys.argv[2]).resolve()
    if not debs:
        sys.exit(f"{sys.argv[1]} holds no .deb file")
    shutil.rmtree(root, ignore_errors=True)
    (root / "usr/lib").mkdir(parents=True)
    for deb in debs:
        try:
            unpack(deb, root)
        except (ValueError, OSError, EOFError, tarfile.TarError, subprocess.SubprocessError) as error:
            sys.exit(f"{deb}: {error}: copy the file again")
    settle(root)


if __name__ == "__main__":
    main()
