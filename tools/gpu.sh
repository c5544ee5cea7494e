# ./dev gpu --pack | ./dev gpu [--out FOLDER] [--device cpu] [PART...]; sourced by dev, which provides the functions used here.
# --pack, on Debian with its packages at hand: gpu-pack/ with the .deb files that a build needs and a machine with
# compilers lacks. The other form, on a machine with a GPU that reaches nothing: builds with the torch of its python3 and
# with gpu-pack/, or with what is installed where there is none, and runs the parts of tools/gpu_parts.py (--device cpu: with
# the CPU in the GPU's place). Every step has a limit; all output is also in FOLDER (runs/gpu), with the logs of the build.
gpu_pack=gpu-pack gpu_root=$ROOT/build/gpu-root gpu_out=runs/gpu gpu_child=
gpu_pack_limit=20000000  # bytes, for a machine to which little can be copied
gpu_build_seconds=240    # with 16 cores; with fewer in proportion
gpu_parts_seconds=540

# The packages that these cannot do without, the first of alternatives.
needs_of() {
  apt-cache depends --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances "$@" |
    awk '/Depends:/ { if (!other && $NF !~ /</) print $NF; other = /^ *\|/ }'
}

# What is built with, and all that it needs but compilers and what every machine with them has.
packages_to_carry() {
  local there all= new
  there="$DEBIAN_TOOLS libc6-dev libstdc++6 $(needs_of libc6-dev libstdc++6)"
  new=$DEBIAN_LIBRARIES
  while [ -n "$new" ]; do
    all="$all $new"
    new=$(needs_of $new | sort -u | grep -vxF -f <(printf '%s\n' $all $there) || true)
  done
  printf '%s\n' $all
}

pack() {
  local names bytes
  command -v apt-get >/dev/null || die "gpu --pack takes packages from apt, which is not here: run it on Debian 12"
  names=$(packages_to_carry)
  rm -rf "$gpu_pack" && mkdir -p "$gpu_pack" build/log
  (cd "$gpu_pack" && apt-get download $names) >build/log/gpu-pack 2>&1 ||
    { tail -n 5 build/log/gpu-pack >&2
      die "apt did not give all of $(wc -w <<<"$names") packages (all output: build/log/gpu-pack): run apt-get update, then this again"; }
  bytes=$(cat "$gpu_pack"/*.deb | wc -c)
  [ "$bytes" -le "$gpu_pack_limit" ] ||
    die "$gpu_pack holds $bytes bytes, more than $gpu_pack_limit: take a package off DEBIAN_LIBRARIES (dependencies.conf)"
  say "$gpu_pack/ has $(wc -w <<<"$names") packages, $(numfmt --to=si "$bytes")B in all"
  say "copy the sources and $gpu_pack/ to the machine with the GPU (not build/, not .venv), and run ./dev gpu there"
}

# The folder of the torch that python3 would import; nothing where there is none.
python3_torch() {
  timeout 60 python3 -c 'import importlib.util as u
spec = u.find_spec("torch")
print(spec.submodule_search_locations[0] if spec and spec.submodule_search_locations else "")'
}

# Refuses a machine that lacks something, with all that it lacks.
check_machine() {
  local program problems=()
  for program in g++ cmake ninja python3; do
    command -v "$program" >/dev/null || problems+=("no $program in PATH: put its folder there")
  done
  gpu_torch=${HANJI_TORCH:-$(python3_torch || true)}
  [ -e "$gpu_torch/lib/libtorch_cpu.so" ] ||
    problems+=("no torch in ${HANJI_TORCH:-$(command -v python3 || printf python3)}: put a python3 that has it first in PATH, or set HANJI_TORCH")
  has_pack || pkg-config --exists hwloc libhwy liburing 2>/dev/null ||
    problems+=("no libraries to build with: make $gpu_pack/ by ./dev gpu --pack on a Debian 12 and copy it beside dev")
  [ ${#problems[@]} -eq 0 ] || die "this machine is not ready:$(printf '\n     %s' "${problems[@]}")"
}

has_pack() { compgen -G "$gpu_pack/*.deb" >/dev/null; }

# Unpacks the packages where that was not done yet, and lets CMake, pkg-config and the linker look there first.
take_pack() {
  local stamp libraries
  stamp=$gpu_root/made-of-$(cat "$gpu_pack"/*.deb | cksum | tr ' ' -)
  [ -e "$stamp" ] || { quietly gpu-unpack python3 -B tools/unpack_debs.py "$gpu_pack" "$gpu_root"; touch "$stamp"; }
  "$gpu_root/usr/bin/ld.mold" --version >/dev/null 2>&1 || rm -f "$gpu_root"/usr/bin/*mold  # the compiler's own linker then
  libraries=$(dirname "$(find "$gpu_root/usr/lib" -name libhwloc.so)")
  export PATH=$gpu_root/usr/bin:$PATH
  export PKG_CONFIG_LIBDIR=$libraries/pkgconfig:$gpu_root/usr/share/pkgconfig
  # Not a new tag: what a library of the pack needs comes from the pack, too.
  gpu_options+=("-DCMAKE_PREFIX_PATH=$gpu_root/usr" "-DCMAKE_LIBRARY_ARCHITECTURE=$(basename "$libraries")"
    "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags")
}

build_for_gpu() {
  local missing gpu_options=() HANJI_TORCH
  HANJI_TORCH=$gpu_torch
  ! has_pack || take_pack
  # An MPI that happens to be there is no part of this.
  configure gpu "-DPython3_EXECUTABLE=$(command -v python3)" -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON "${gpu_options[@]}"
  say "building with $gpu_torch, $(nproc) at once"
  compile gpu hanji_gpu
  missing=$(ldd build/gpu/bin/hanji | sed -n 's/ => not found//p')
  [ -z "$missing" ] || die "build/gpu/bin/hanji was built but misses libraries at its start:
$missing
     set LD_LIBRARY_PATH to the folders that have them, and run the same again"
  timeout 120 build/gpu/bin/hanji --version
}

# within SECONDS WHAT COMMAND...: its exit code; ends it, and says so, after the seconds.
within() {
  local seconds=$1 what=$2 code=0
  shift 2
  timeout -k 10 "$seconds" "$@" </dev/null &
  gpu_child=$!
  wait "$gpu_child" || code=$?
  gpu_child=
  [ "$code" -ne 124 ] && [ "$code" -ne 137 ] ||
    say "$what took longer than $seconds s and was ended (logs: $gpu_out): run the same again, what is built stays"
  return "$code"
}

known_part() {
  local parts
  parts=$(python3 -B tools/gpu_parts.py --list)
  grep -q "^$1 " <<<"$parts" || die "no part of the GPU's list is called $1; they are:
$parts"
}

gpu_all() {
  local code=0 cores begin=$SECONDS
  trap '[ -z "$gpu_child" ] || kill "$gpu_child"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  cores=$(nproc)
  [ "$cores" -le 16 ] || cores=16
  within $((gpu_build_seconds * 16 / cores)) "the build" bash "$ROOT/dev" gpu --build || code=$?
  cp build/log/*gpu* build/gpu/cpu_seconds "$gpu_out" 2>/dev/null || true
  [ "$code" -eq 0 ] || return "$code"
  say "built in $((SECONDS - begin)) s"
  within "$gpu_parts_seconds" "all parts" python3 -B tools/gpu_parts.py --build build/gpu --out "$gpu_out" "$@"
}

gpu_arguments=()
while [ $# -gt 0 ]; do
  case $1 in
    --pack) pack; exit ;;
    --build) check_machine; build_for_gpu; exit ;;
    --out) [ $# -ge 2 ] || die "--out takes a folder"
      gpu_out=$(cd "$CALLER" && realpath -m "$2"); shift ;;
    --device) [[ ${2:-} =~ ^(cpu|cuda)$ ]] || die "--device is cpu or cuda, not '${2:-}'"
      gpu_arguments+=(--device "$2"); shift ;;
    -*) die "gpu has no option $1: ./dev gpu --pack, or ./dev gpu [--out FOLDER] [--device cpu] [PART...]" ;;
    *) known_part "$1"; gpu_arguments+=("$1") ;;
  esac
  shift
done
check_machine
mkdir -p "$gpu_out"
gpu_all "${gpu_arguments[@]}" 2>&1 | tee -i "$gpu_out/log"
