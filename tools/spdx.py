#!/usr/bin/env python3
"""Writes what a package of hanji consists of, as SPDX 2.3 JSON.

    tools/spdx.py STAGE BUILD VERSION PROGRAM...     to standard output

Versions of Python packages are those of dependencies.conf. Linked libraries are what the PROGRAMs ask the loader for,
and what those ask for; libraries that are headers alone, the packages of dependencies.conf whose headers the build
folder BUILD has read for them. A package whose licence is not in LICENSES is an error: read it and add it.
"""
import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# By Debian's source package, or the name of the Python package; read in the files of copyright.
LICENSES = {
    "cli11": "BSD-3-Clause",
    "fmtlib": "MIT",
    "gcc-12": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "glibc": "LGPL-2.1-or-later",
    "highway": "Apache-2.0",
    "hwloc": "BSD-3-Clause",
    "libcap2": "BSD-3-Clause OR GPL-2.0-only",
    "libjpeg-turbo": "IJG AND BSD-3-Clause AND Zlib",
    "libpng1.6": "libpng-2.0",
    "liburing": "LGPL-2.1-only OR MIT",
    "nlohmann-json3": "MIT",
    "nvidia-nvtx": "Apache-2.0 WITH LLVM-exception",
    "openssl": "Apache-2.0",
    "systemd": "LGPL-2.1-or-later",
    "tomlplusplus": "MIT",
    "torch": "BSD-3-Clause",
    "xxhash": "BSD-2-Clause",
    "zlib": "Zlib",
}


def output_of(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def settings():
    """The variables of dependencies.conf."""
    text = (ROOT / "dependencies.conf").read_text()
    return {name: value.split() for name, value in re.findall(r'^(\w+)="([^"]*)"', text, re.M)}


def needed(file):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "-d", file))


def linked_files(programs):
    """Paths of all libraries that the programs load, without libtorch's and what that loads."""
    found = {}
    for program in programs:
        places = dict(re.findall(r"^\s*(\S+) => (/\S+)", output_of("ldd", program), re.M))
        left = needed(program)
        while left:
            name = left.pop()
            if name in found or name not in places or "/torch/lib/" in places[name]:
                continue
            found[name] = places[name]
            left += needed(places[name])
    return set(found.values())


def owners(files):
    """The Debian packages that files are of; a file of none has none."""
    spellings = set()
    for file in files:
        real = os.path.realpath(file)
        spellings |= {file, real, re.sub("^/usr/lib/", "/lib/", real), re.sub("^/lib/", "/usr/lib/", file)}
    done = subprocess.run(["dpkg-query", "-S", *sorted(spellings)], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, check=False)
    return {line.split(":")[0] for line in done.stdout.splitlines() if ": /" in line}


def headers_read(build):
    """Headers outside of the sources that anything but tests was compiled with."""
    files, wanted = set(), False
    for line in output_of("ninja", "-C", build, "-t", "deps").splitlines():
        if line and not line.startswith(" "):
            wanted = "_test" not in line and "#deps" in line
        elif wanted and line.strip():
            files.add(line.strip())
    return files


def described(name, version, license, purl):
    return {
        "SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name),
        "name": name, "versionInfo": version, "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION", "licenseDeclared": license, "copyrightText": "NOASSERTION",
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}],
    }


def license_of(name):
    if name not in LICENSES:
        sys.exit(f"tools/spdx.py: {name} is linked or compiled in, and its licence is not known here: read it and add "
                 "it to LICENSES")
    return LICENSES[name]


def debian_package(name):
    source, version, architecture = output_of(
        "dpkg-query", "-W", "-f", "${source:Package}\t${Version}\t${Architecture}\n", name).splitlines()[0].split("\t")
    purl = f"pkg:deb/debian/{name}@{version.replace(':', '%3A').replace('+', '%2B')}?arch={architecture}"
    return source, described(name, version, license_of(source), purl)


def python_package(requirement):
    name, version = requirement.split("==")
    return described(name, version, license_of(name), f"pkg:pypi/{name}@{version}")


def contents_hash(stage):
    total = hashlib.sha256()
    for file in sorted(path for path in stage.rglob("*") if path.is_file()):
        total.update(f"{file.relative_to(stage)}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


def main(stage, build, version, *programs):
    conf = settings()
    linked = [debian_package(name) for name in sorted(owners(linked_files(programs)))]
    headers = headers_read(build)
    compiled = [debian_package(name)
                for name in sorted(owners(header for header in headers if header.startswith("/usr/include/")))
                if name in conf["DEBIAN_LIBRARIES"]]
    sources = {source for source, _ in linked}
    parts = [(package, "DYNAMIC_LINK") for _, package in linked]
    parts += [(package, "CONTAINS") for source, package in compiled if source not in sources]
    parts.append((python_package(conf["PYTHON_TORCH"][0]), "DYNAMIC_LINK"))
    if any("/nvtx3/" in header for header in headers):
        parts.append((python_package(conf["PYTHON_NVTX"][0]), "CONTAINS"))
    hanji = described("hanji", version, "Apache-2.0", f"pkg:generic/hanji@{version}")
    created = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    json.dump({
        "SPDXID": "SPDXRef-DOCUMENT", "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "name": f"hanji-{version}",
        "documentNamespace": f"https://spdx.org/spdxdocs/hanji-{version}-{contents_hash(pathlib.Path(stage))}",
        "creationInfo": {"created": created.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": [f"Tool: spdx.py-{version}"]},
        "packages": [hanji, *(package for package, _ in parts)],
        "relationships": [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES",
                           "relatedSpdxElement": hanji["SPDXID"]},
                          *({"spdxElementId": hanji["SPDXID"], "relationshipType": kind,
                             "relatedSpdxElement": package["SPDXID"]} for package, kind in parts)],
    }, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main(*sys.argv[1:])
