# The long checks of ./dev check; sourced by dev, which provides the functions used here.
setup
debian_packages $DEBIAN_CHECK
python_check

say "every public header alone"
headers

say "address and undefined behaviour, core floors"
configure asan
compile asan
(cd build/asan && ctest --output-on-failure)

say "data races, all of the core"
tsan base trace topology layout schedule cost shm launch plan report

say "release build, every source by itself, warnings as errors"
configure release -DHANJI_UNITY=OFF -DHANJI_WERROR=ON -DCMAKE_CXX_FLAGS=-Wno-missing-field-initializers -DCMAKE_INSTALL_PREFIX="$ROOT/build/install"
compile release
quietly install cmake --install build/release

say "a consumer out of tree, by find_package and by pkg-config"
quietly consumer-configure cmake -S examples/consumer -B build/consumer -G Ninja \
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$ROOT/build/install"
quietly consumer-build ninja -C build/consumer
./build/consumer/consumer
./build/install/bin/hanji run --ranks 2 ./build/consumer/consumer
PKG_CONFIG_PATH=build/install/lib/pkgconfig:$(echo build/install/lib/*/pkgconfig) \
  quietly pkg-config bash -c 'g++ examples/consumer/main.cpp -o build/consumer-pc $(pkg-config --cflags --libs hanji)'
./build/consumer-pc

say "parsers of foreign bytes, 60 s each"
(source tools/fuzz.sh 60)

build
say "a thousand random kills, each named by every survivor"
build/dev/hanji/test/hanji_faults kills 1000

say "the protocol of the flag lines in every order, the larger sizes"
build/dev/hanji/test/hanji_protocol_model large
say "a rank killed, and one stopped, at every step of every routine"
for ranks in 2 3 4; do build/dev/hanji/test/hanji_faults steps $ranks; done

say "a checkpoint, a trace and a curve read by Python's own readers"
.venv/bin/python tests/readers_check.py

say "the Python backend: pip's build in isolation, PyTorch's parallelism and own tests on it"
python_backend isolated
.venv/bin/pip install -q --no-input $PYTHON_SUITE
.venv/bin/python -B python/hanji_c10d/tests/test_parallel.py
.venv/bin/python -B python/hanji_c10d/tests/torch_suite.py | grep -aE '^failed|ranks, torch'

say "every command of docs/"
.venv/bin/python tools/docs.py build/dev/bin/hanji

say "stable bits over many plans"
HANJI_BINARY=$PWD/build/dev/bin/hanji .venv/bin/python -B tests/stable_matrix.py

say "examples and a smoke run of every benchmark"
for example in build/dev/bin/examples/*; do "$example"; done
source tools/bench.sh --smoke
say "all long checks passed"
