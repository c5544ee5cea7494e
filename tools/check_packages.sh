# The part packages of ./dev check; sourced by dev, which provides the functions used here. Each package is made, and
# installed into a bare Debian 12 of its own, which has no sources; tests/installed_package.sh runs there.
[ "$(id -u)" -eq 0 ] || cannot_run "it makes Debian roots, which needs root"
bash "$ROOT/dev" package
build/packages/venv/bin/pyspdxtools -i build/packages/stage/share/doc/hanji/hanji.spdx.json
source tools/clean_root.sh

installs() {  # installs PACKAGE KIND
  (
    make_clean_root bookworm python3,python3-venv
    mkdir -p "$clean_root/root/hanji"
    if [ -e /etc/apt/sources.list.d/debian.sources ]; then
      cp /etc/apt/sources.list.d/debian.sources "$clean_root/etc/apt/sources.list.d/"
      rm "$clean_root/etc/apt/sources.list"
    fi
    cp -r "$1" tests/installed_package.sh examples/consumer "$clean_root/root/hanji"
    in_clean_root "timeout -k 30 1800 bash installed_package.sh $2 $PYTHON_TORCH"
  )
}

installs build/packages/hanji-*.whl wheel
installs build/packages/hanji-*.tar.gz archive
