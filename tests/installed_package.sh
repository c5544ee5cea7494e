#!/usr/bin/env bash
# What an installed package must do, in a bare Debian 12; started by tools/check_packages.sh.
#   installed_package.sh wheel|archive torch==VERSION     the package and examples/consumer lie in the current folder
set -euo pipefail
kind=$1 torch=$2

step() { printf '== %s\n' "$*"; }

# A folder of Python's with torch: the CPU build where pip offers one.
python_with_torch() {
  step "pip install $torch"
  python3 -m venv all
  all/bin/pip install -q --no-input "$torch+cpu" 2>/dev/null || all/bin/pip install -q --no-input "$torch"
}

install_debian() {
  step "apt-get install $*"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >/dev/null
}

refuses() {  # refuses WORDS COMMAND...
  local words=$1 said code=0
  shift
  said=$("$@" 2>&1) || code=$?
  printf '%s\n' "$said"
  [ $code -eq 2 ] && grep -qF -- "$words" <<<"$said"
}

trains() {  # trains HANJI SHARE
  step "$1 trains"
  "$1" --version
  "$1" doctor || [ $? -eq 2 ]  # findings are no fault of the package
  "$1" train --ranks 2 --steps 5 --out "run-$kind"
  test -s "run-$kind/summary.json"
  "$1" report "run-$kind" >/dev/null
  step "pages, completion, licences"
  bash -n <("$1" completion bash)
  (cd "$2" && ls man/man1/hanji.1 man/man1/hanji-train.1 man/man1/hanji-data-make.1 \
    bash-completion/completions/hanji zsh/site-functions/_hanji fish/vendor_completions.d/hanji.fish \
    doc/hanji/{LICENSE,SECURITY.md,hanji.spdx.json,docs/README.md,licenses/libhwloc15})
}

# The library, as a user's program finds it.
links() {  # links PREFIX HANJI
  step "find_package in $1"
  cmake -S consumer -B "built-$kind" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$PWD/$1" >/dev/null
  ninja --quiet -C "built-$kind"
  "$2" run --ranks 2 "built-$kind/consumer"
  step "pkg-config in $1"
  export PKG_CONFIG_PATH=$PWD/$1/lib/pkgconfig
  g++ consumer/main.cpp -o "built-$kind/by-pkg-config" $(pkg-config --cflags --libs hanji)
  "$2" run --ranks 2 "built-$kind/by-pkg-config"
}

development() {
  install_debian g++ cmake ninja-build pkg-config libssl-dev libfmt-dev libhwloc-dev libhwy-dev liburing-dev \
    libjpeg62-turbo-dev libpng-dev
}

backend() {
  step "torch.distributed on the backend hanji"
  cat >backend.py <<'END'
import torch
import torch.distributed as dist
dist.init_process_group("hanji")
ones = torch.ones(1000)
dist.all_reduce(ones)
assert ones.sum() == 1000 * dist.get_world_size(), ones
dist.destroy_process_group()
END
  all/bin/hanji run --ranks 2 all/bin/python backend.py
}

# The command in an environment, and torch in another one that Python finds, or finds no more.
other_environment() {
  step "torch in another environment"
  python3 -m venv other
  other/bin/pip install -q --no-input --no-deps hanji-*.whl
  refuses "no torch in the Python" other/bin/hanji --version
  mkdir -p elsewhere old/torch/lib
  ln -s "$(echo "$PWD"/all/lib/python3*/site-packages/torch)" elsewhere/torch
  PYTHONPATH=$PWD/elsewhere other/bin/hanji train --ranks 2 --steps 2 --out run-other
  touch old/torch/lib/libtorch_cpu.so
  echo "__version__ = '1.13.1'" >old/torch/version.py
  PYTHONPATH=$PWD/old refuses "is torch 1.13.1, and this hanji was built for" other/bin/hanji --version
}

wheel() {
  python_with_torch
  step "pip install the wheel"
  all/bin/pip install -q --no-input hanji-*.whl
  trains all/bin/hanji all/share
  backend
  other_environment
  development
  links "$(echo all/lib/python3*/site-packages/hanji)" all/bin/hanji
}

archive() {
  local prefix
  tar -xzf hanji-*.tar.gz
  prefix=$(basename "$(dirname hanji-*/LICENSE)")
  install_debian $(cat "$prefix/share/doc/hanji/debian_packages")
  python_with_torch
  ln -s "$(echo "$PWD"/all/lib/python3*/site-packages/torch)" "$prefix/libtorch"
  trains "$prefix/bin/hanji" "$prefix/share"
  development
  links "$prefix" "$prefix/bin/hanji"
}

"$kind"
step "the $kind does all"
