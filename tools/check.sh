# ./dev check [PART...]: the long checks; --from PART: those from a part of the list on. Sourced by dev,
# which provides the functions used here.
# A part runs in a process of its own, ends at its first failure and leaves build/log/check-PART; the
# others go on. A part that cannot run here ends by cannot_run with the reason; what of a part cannot
# run is a line "SKIPPED what: reason" of its log. build/check_seconds has of each part what it took
# the last time, its outcome and the commit, with a + if files differed from it.

list_parts() {
  cat <<'END'
headers     every public header compiled alone
release     the release build: every source by itself, warnings as errors
consumer    a program out of tree builds against what `cmake --install` gives, by find_package and pkg-config
packages    the wheel and the archive, each installed into a bare Debian, train there
docs        every command of docs/
examples    every example, alone and as ranks
launchers   mpirun, torchrun and srun start our programs; torch.distributed's operations from Python
stable      stable bits over many plans
verdicts    40 runs with a slow rank, a slow reader or nothing: the report names it
readers     a checkpoint, a trace and a curve read by Python's own readers
page        HTML reports of real runs in Chromium: light and dark, narrow and wide, with axe-core
pipelines   pipeline schedules against PyTorch's classes, its validation and its simulator; random jobs; memory; bubbles
meshes      meshes of all axes train as one process does, in float64 and in stable bits
python      pip's build of the Python backend in isolation; DDP, FSDP2, DTensor and a pipeline on it
torch_suite PyTorch's own distributed tests on the Python backend
bench       a smoke run of every benchmark
gpu         ./dev gpu in a bare Debian of another release, with another torch and no network
kills       promised times: a death named by every survivor, a stopped rank, a death on another host
training    a rank of `hanji train` killed and stopped in forward, a collective, the optimizer, a save
protocol    the protocol of the flag lines in every order, the larger sizes
steps       a rank killed, and one stopped, at every step of every routine
mutations   faults planted in a copy of the sources, each of which a test finds (tools/mutations.py --list)
asan        address and undefined behaviour, core floors
asan_torch  the same above torch: comm, parallel, lens, train, checkpoint
tsan        data races, core floors
fuzz        a million inputs for every parser of foreign bytes
avx2        what a processor without AVX-512 runs
END
}

core_floors="base trace topology layout schedule cost shm launch launch/control_plane plan report"

last_times=build/check_seconds  # lines "PART SECONDS OUTCOME COMMIT"

list_with_times() {
  list_parts | awk -v file="$last_times" '
    BEGIN { while ((getline <file) > 0) last[$1] = sprintf("%6d s %-8s %s", $2, $3, $4) }
    { part = $1; sub(/^[^ ]+ +/, "")
      printf "%-12s%-27s %s\n", part, part in last ? last[part] : "   not run in this build/", $0 }'
}

# What parts will take if they take what they took.
expect() {  # expect PART...
  awk -v file="$last_times" 'BEGIN {
    while ((getline <file) > 0) last[$1] = $2
    for (i = 1; i < ARGC; i++) if (ARGV[i] in last) { sum += last[ARGV[i]]; known++ } else rest = rest " " ARGV[i]
    printf "expected by the last times: %d min for %d of %d parts", sum / 60 + 0.5, known, ARGC - 1
    if (rest) printf "; not run in this build/:%s", rest }' "$@"
}

tree_name() {
  git rev-parse --short HEAD 2>/dev/null || { printf 'unknown'; return; }
  git diff --quiet HEAD || printf '+'
}

remember() {  # remember PART SECONDS OUTCOME COMMIT
  local others
  others=$(grep -v "^$1 " "$last_times" 2>/dev/null || true)
  printf '%s\n' ${others:+"$others"} "$*" >"$last_times"
}

cannot_run() { printf 'SKIPPED: %s\n' "$*"; exit 77; }

# Tests of a build folder that are registered under a name that matches.
registered() {  # registered PRESET REGEX
  run_tests "$1" --no-tests=error -R "$2"
  python3 tools/skipped.py "build/$1/Testing/Temporary/LastTest.log" | sed -n 's/^  /SKIPPED /p'
}

check_headers() { headers; }

check_release() {
  configure release -DHANJI_UNITY=OFF -DHANJI_WERROR=ON -DCMAKE_INSTALL_PREFIX="$ROOT/build/install"
  compile release
}

check_consumer() {
  check_release
  rm -rf build/install build/consumer build/consumer-pc build/exercise-2
  cmake --install build/release
  cmake -S examples/consumer -B build/consumer -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_PREFIX_PATH="$ROOT/build/install"
  ninja -C build/consumer
  ./build/consumer/consumer
  ./build/install/bin/hanji run --ranks 2 ./build/consumer/consumer
  PKG_CONFIG_PATH=$(dirname "$(find "$ROOT/build/install" -name hanji.pc)")
  export PKG_CONFIG_PATH
  g++ examples/consumer/main.cpp -o build/consumer-pc $(pkg-config --cflags --libs hanji)
  ./build/consumer-pc
  ./build/install/bin/hanji run --ranks 2 ./build/consumer-pc
  ./build/install/bin/hanji exercise 2 --solution --out build/exercise-2
  ./build/install/bin/hanji exercise 2 --check --out build/exercise-2
}

check_packages() { source tools/check_packages.sh; }

check_docs() {
  build hanji_cli example_04_hangs_on_purpose
  .venv/bin/python -B tools/docs.py build/dev/bin/hanji
}

check_examples() {
  build
  registered dev '^example_'
}

check_launchers() {
  (debian_packages $DEBIAN_SLURM) || true  # what then cannot run says so
  build
  registered dev '^(end_to_end_(launchers|mpi)|mpi_.*|python_operations)$'
}

check_stable() {
  build hanji_cli
  # Two cases at once, the last of the file first, which take longest.
  sed -n 's/.*def \(test_[a-z_0-9]*\).*/StableMatrix.\1/p' tests/stable_matrix.py | tac |
    HANJI_BINARY=$PWD/build/dev/bin/hanji xargs -P 2 -n 1 .venv/bin/python -B tests/stable_matrix.py -v
}

check_verdicts() {
  build hanji_cli hanji_slow_rank
  HANJI_BINARY=$PWD/build/dev/bin/hanji HANJI_SLOW_RANK=$PWD/build/dev/tests/hanji_slow_rank \
    .venv/bin/python -B tests/verdict_runs.py
}

check_readers() {
  build hanji_cli
  .venv/bin/python -c 'import hta' 2>/dev/null || .venv/bin/python -m pip install -q --no-input --no-deps $PYTHON_HTA
  .venv/bin/python -B tests/readers_check.py
}

# Node may be there from elsewhere, with an npm of its own, beside which Debian's cannot be installed.
check_page() {
  local packages=$DEBIAN_PAGE
  command -v node >/dev/null && command -v npm >/dev/null || packages+=" $DEBIAN_NODE"
  (debian_packages $packages) || cannot_run "Chromium or Node cannot be installed"
  mkdir -p build/page
  npm install --prefix build/page --no-save --no-fund --no-audit --ignore-scripts --silent $NODE_PAGE ||
    cannot_run "npm gives no $NODE_PAGE"
  build hanji_cli
  .venv/bin/python -B tests/page_check.py build/page
}

check_pipelines() {
  build hanji_pipeline_lists hanji_train_test hanji_parallel_test
  .venv/bin/python -B tools/pipelines.py build/dev/hanji/test/hanji_pipeline_lists
  build/dev/hanji/train/hanji_train_test --gtest_filter=RandomJobs.* --gtest_shuffle \
    --gtest_random_seed=1 --gtest_repeat=300 --gtest_brief=1
  build/dev/hanji/train/hanji_train_test --gtest_also_run_disabled_tests \
    --gtest_filter=CountedMemory.*LargeStages*
  build/dev/hanji/parallel/hanji_parallel_test --gtest_also_run_disabled_tests \
    --gtest_filter=PipelineTest.*IdlesAsLong*
}

check_meshes() {
  build hanji_train_test
  build/dev/hanji/train/hanji_train_test --gtest_also_run_disabled_tests --gtest_brief=1 \
    --gtest_filter=*/Meshes.*
}

check_python() {
  python_backend isolated
  .venv/bin/python -B python/hanji_c10d/tests/test_parallel.py -v
}

check_torch_suite() {
  build hanji_c10d
  .venv/bin/pip install -q --no-input $PYTHON_SUITE
  PYTHONPATH=$PWD/build/dev/python .venv/bin/python -B python/hanji_c10d/tests/torch_suite.py
}

check_bench() { source tools/bench.sh --smoke; }

# The CPU stands for the GPU.
check_gpu() {
  [ "$(id -u)" -eq 0 ] || cannot_run "it makes a Debian root, which needs root"
  bash "$ROOT/dev" gpu --pack
  source tools/clean_root.sh
  make_clean_root trixie g++,cmake,ninja-build,python3,python3-dev,python3-venv
  git clone -q --no-hardlinks "$ROOT" "$clean_root/root/hanji"
  cp -r gpu-pack "$clean_root/root/hanji"
  in_clean_root "python3 -m venv /root/torch && /root/torch/bin/pip install -q --no-input $PYTHON_OTHER_TORCH $PYTHON_CHECK"
  NETWORK=none in_clean_root "PATH=/root/torch/bin:\$PATH ./dev gpu --device cpu"
}

check_kills() {
  build hanji_faults
  build/dev/hanji/test/hanji_faults kills 1000
  build/dev/hanji/test/hanji_faults stops 100
  build/dev/hanji/test/hanji_faults hosts 200
}

check_training() {
  build hanji_cli hanji_faults
  HANJI_BINARY=$PWD/build/dev/bin/hanji HANJI_FAULTS=$PWD/build/dev/hanji/test/hanji_faults \
    .venv/bin/python -B tests/faults_matrix.py
}

check_protocol() {
  build hanji_protocol_model
  build/dev/hanji/test/hanji_protocol_model large
}

check_steps() {
  local ranks
  build hanji_faults
  for ranks in 2 3 4; do build/dev/hanji/test/hanji_faults steps $ranks; done
}

check_mutations() { python3 -B tools/mutations.py; }

# A finding of the undefined-behaviour sanitizer ends the test. hwloc's reader of PCI leaks some
# hundred bytes when it is unloaded, where no suppression names it; descriptions of hosts in files
# reach our code behind it.
check_asan() {
  configure asan
  compile asan $(printf 'hanji_%s_test ' ${core_floors//\//_})
  HWLOC_COMPONENTS=-pci UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
    registered asan "^(${core_floors// /|})\$"
}

# One thread: OpenMP's own barriers are no part of what is looked at. No overflow of containers is
# looked for: libtorch fills vectors without telling the sanitizer. A test of ours dies of SIGSEGV on
# purpose; those that count private pages would count the sanitizer's.
check_asan_torch() {
  local floors="comm parallel lens train checkpoint"
  configure asan
  compile asan $(printf 'hanji_%s_test ' $floors)
  OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_container_overflow=0:handle_segv=0 \
    GTEST_FILTER=-ActivationStore.MemoryHolds*:OffloadedShards.MemoryDoesNotGrow* \
    UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 registered asan "^(${floors// /|})(_[0-9]+)?\$"
}

check_tsan() { tsan $core_floors; }

check_fuzz() { source tools/fuzz.sh; }

check_avx2() { source tools/check_avx2.sh; }

# Runs one part within its limit; its outcome and time are in `table`, what it could not run in `skips`.
run_part() {
  local name=$1 log=build/log/check-$1 begin=$SECONDS code=0 outcome=passed seconds commit
  commit=$(tree_name | tr -d '\n')
  timeout -k 30 4h bash "$ROOT/dev" check --part "$name" >"$log" 2>&1 </dev/null &
  part=$!
  wait "$part" || code=$?
  part=
  case $code in
    0) ;;
    77) outcome=SKIPPED ;;
    124 | 137) outcome=failed; printf 'it took longer than 4 hours\n' >>"$log" ;;
    *) outcome=failed; [ "$code" -le 128 ] || printf 'a signal ended it: %s\n' "$(kill -l "$code")" >>"$log" ;;
  esac
  seconds=$((SECONDS - begin))
  remember "$name" "$seconds" "$outcome" "$commit"
  table+=("$(printf '%-12s %-8s %6d s' "$name" "$outcome" "$seconds")")
  while IFS= read -r line; do skips+=("$name: $line"); done < <(sed -n 's/^SKIPPED:\? //p' "$log")
  say "${table[-1]}"
  [ "$outcome" != failed ] || { failed+=("$name"); tail -n 40 "$log" >&2; say "all output: $log"; }
}

case ${1:-} in
  --list | help) list_with_times; exit ;;
  --part) "check_$2"; exit ;;
esac
names=$(list_parts | cut -d' ' -f1)
first=
if [ "${1:-}" = --from ]; then
  [ $# -eq 2 ] || die "--from takes one part of the check; they are:
$(list_parts)"
  shift
  first=$1
fi
for name in "$@"; do
  grep -qx -- "$name" <<<"$names" || die "no part of the check is called $name; they are:
$(list_parts)"
done
[ -z "$first" ] || set -- $(sed -n "/^$first\$/,\$p" <<<"$names")
mkdir -p build/log
setup
packages_for_tests
python_check
table=() skips=() failed=() part=
trap '[ -z "$part" ] || kill "$part"' EXIT
trap 'exit 130' INT TERM
say "$(expect ${*:-$names})"
for name in ${*:-$names}; do run_part "$name"; done
printf '%-12s %-8s %8s\n' part result time
printf '%s\n' "${table[@]}"
[ ${#skips[@]} -eq 0 ] || printf 'SKIPPED, not counted as passed: %s\n' "${skips[@]}"
[ ${#failed[@]} -eq 0 ] || die "failed: ${failed[*]} (./dev check PART runs one; output: build/log/check-PART)"
say "nothing failed"
