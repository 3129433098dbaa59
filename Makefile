# make demo   the main job on the fixture network, on an emulated Pi 4
# make test   all tests (fast and emulated groups); make check: format, lint, types and the fast tests
# Both set up what they need: .venv, and Debian packages where root allows it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
FIXTURES := build/venv-fixtures
NEWEST := build/venv-newest

# All targets but files
.PHONY: $(shell sed -n 's/^\([a-z][a-z-]*\):.*/\1/p' $(firstword $(MAKEFILE_LIST)))

setup: system $(STAMP)

system:
	@tools/system-packages.sh

# Installs the very files of requirements.lock, which all tests ran with, where these are for this Python and machine
# (LOCKED=1 or LOCKED= say otherwise); elsewhere the newest versions that pyproject.toml allows, as test-newest does
LOCKED ?= $(shell $(PYTHON) tools/lock.py --fits)
$(STAMP): pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(if $(LOCKED),$(BIN)/python -m pip install --quiet --require-hashes --no-deps -r requirements.lock)
	$(BIN)/python -m pip install --quiet -e '.[dev,docs]'
	@tools/tflite-runtime-env.sh $(PYTHON)
	$(BIN)/python -m edgec.toolchain.libraries
	@touch $(STAMP)

demo: setup
	$(BIN)/edgec demo --out build/demo

# The whole emulated machines run beside the others in a process of their own, so that each of them boots once; it reads
# the files that have tests of them alone
PI = $(shell grep -rl --include='*.py' 'mark\.pi\b' tests)
test: setup
	@mkdir -p build
	$(BIN)/python -m pytest -rs --durations=10 -m pi $(PI) >build/pi-tests.txt 2>&1 & pi=$$!; \
	    $(BIN)/python -m pytest -n 3 --dist worksteal -rs --durations=40 -m "not pi"; others=$$?; \
	    wait $$pi; pi=$$?; cat build/pi-tests.txt; exit $$((others || pi))

# Every case of the long tests, of which `make test` runs a sample
sweep: setup
	$(BIN)/python -m pytest -n 3 --dist worksteal -rs --sweep -m sweep

# 2,000 damaged files of edgetpu_compiler: each ends in a page or in one message, and is re-used rightly or not at all
# (reads ../shared)
fuzz-compiled: setup
	$(BIN)/python -m pytest -rs --sweep tests/inspecting/test_compiled.py tests/edgetpu_file/test_reuse.py -k many_damaged

# All tests of whole emulated machines on the other release of Debian: make pi RELEASE=bookworm
pi: setup
	$(BIN)/python -m pytest -rs --durations=20 -m pi $(PI) --sweep --release $(or $(RELEASE),trixie)

check: setup lint types fast

# Every verb once, and the choice of segments, with the newest versions that pyproject.toml allows, in an environment of
# its own: what `pip install edgec` gives a user today
test-newest: setup
	$(PYTHON) -m venv $(NEWEST)
	$(NEWEST)/bin/python -m pip install --quiet --upgrade --upgrade-strategy eager pip -e . pytest pytest-timeout pytest-xdist hypothesis \
	    onnxruntime opencv-python-headless
	$(NEWEST)/bin/python -m pytest -n 2 --dist worksteal -rs --sweep tests/cli/test_every_verb.py tests/partition/test_cuts.py

# What edgec needs on the Pythons that are here, 3.9 to 3.13, downloaded into build/wheels
wheels: setup
	$(BIN)/python -m tests.distribution.pythons build/wheels

# The wheels in clean environments of these Pythons
test-wheels: wheels
	EDGEC_WHEELS=build/wheels $(BIN)/python -m pytest -rs tests/distribution

KERNELS = $(shell find runtime/edgec_runtime/csrc edgec/exporting/camera_app -name '*.[ch]')

lint:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@$(BIN)/clang-format --dry-run --Werror $(KERNELS)

format:
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(KERNELS)

types:
	$(BIN)/mypy edgec partitioner/edgec_partitioner runtime/edgec_runtime devices/edgec_devices tests benchmarks tools/release

fast:
	$(BIN)/python -m pytest -n 2 -rs --dist worksteal -m "not (slow or arm or shared or browser)"

# That a refactoring changed nothing: hashes of all that is generated for 22 models (reads ../shared; a few minutes);
# make replay ARGS='--only digits --update' writes them anew
replay: setup
	$(BIN)/python -m benchmarks.replay $(ARGS)

# How readable each room is: make house ARGS=--functions names the worst functions
house: setup
	$(BIN)/python -m benchmarks.house $(ARGS)

# Whether the tests notice small faults in ops, passes, kernels, flash and runtime (half an hour for all):
# make planted-faults ARGS='--only fold_pad,tracker'
planted-faults: setup
	$(BIN)/python -m benchmarks.planted_faults $(ARGS)

models-table: setup
	$(BIN)/python -m benchmarks.models_table $(ARGS)

# Every ready network, and those of the tests, on every Pi: estimated anew into benchmarks/models.json, and
# docs/models-table.md from it (an hour): make models-page ARGS='--estimate models:palm'
models-page: setup
	$(BIN)/python -m benchmarks.models_page $(ARGS)

# The stock column beside public logs of edgetpu_compiler (reads ../shared)
stock-table: setup
	$(BIN)/python -m benchmarks.stock_table

# Values that differ between TFLite's int8 arithmetic and the Edge TPU's (reads ../shared; minutes)
chip-rounding: setup
	$(BIN)/python -m benchmarks.chip_rounding $(ARGS)

# Estimates of other runtimes on the boards beside times that others have published (reads ../shared, and needs its
# armlab/setup.sh count user peers; hours where nothing is counted yet): make truth ARGS='--boards pi5 --networks squeezenet'
truth: setup
	$(BIN)/python -m benchmarks.truth $(ARGS)

cost-table: setup
	$(BIN)/python -m benchmarks.cost_table

# The CPU times that the partitioner reckons with, fitted to single ops on the boards' cores (reads ../shared; minutes);
# make cpu-table ARGS=--check compares networks with what make bench-arm measured
cpu-table: setup
	$(BIN)/python -m benchmarks.cpu_table $(ARGS)

# How far the model of the boards' cores is from a better one: reads ../shared, and needs llvm-19 for that one
pipeline-table: setup
	$(BIN)/python -m benchmarks.pipeline_table

# edgec beside LiteRT on the boards' cores, in estimated cycles (reads ../shared, and needs llvm-19; without: edgec's own
# model of the cores): make bench-arm ARGS='--models resnet8_i8,vww96_i8 --boards pi4 --ops all'
bench-arm: setup
	$(BIN)/python -m benchmarks.bench_arm $(ARGS)

# The same of all networks, into benchmarks/results.json, and the tables of docs/speed.md and README from it. The peers'
# figures, hours of an emulator, can be counted once: make bench-arm ARGS='--peers-only peers.json', then make speed-page
# ARGS='--peers-from peers.json'
speed-page: setup
	$(BIN)/python -m benchmarks.bench_arm --ops none $(ARGS)
	$(BIN)/python -m benchmarks.speed_page --add build/bench-arm.json --estimate

# The schedules that edgec comes with, searched anew on the emulated boards (reads ../shared; hours for all):
# make tuned ARGS='--models mnv2_tf2_i8 --boards pi4'
tuned: setup
	$(BIN)/python -m benchmarks.tuned $(ARGS)

# Random layers by random legal schedules of every core, against what the ops mean (Arm cores under QEMU):
# make schedule-fuzz ARGS='--cases 1000 --cores cortex_a76'
schedule-fuzz: setup
	$(BIN)/python -m benchmarks.schedule_fuzz $(ARGS)

# Real models of ../shared under sanitizers on the cores of this machine and of the boards (an hour for all):
# make sanitize-table ARGS='--models resnet8_i8 --checks threads'
sanitize-table: setup
	$(BIN)/python -m benchmarks.sanitize_table $(ARGS)

# Ten small networks of ../shared by plain C and the cores of this machine, of NaN, infinities, denormals, extremes and
# any bits, under sanitizers: clean, and the integers of interp (an hour): make sanitize-models ARGS='--json FILE'
SANITIZED = resnet8_i8,vww96_i8,kws_dscnn_i8,mnv1_025_128_u8,mnist_lstm_i8,mnist8,mp_blazeface_short_f16,mp_selfie_land_f16,pfld_ghostone,yunet_n_320
sanitize-models: setup
	$(BIN)/python -m benchmarks.sanitize_table --checks addresses --models $(SANITIZED) $(ARGS)

# The generated C of every op's samples under sanitizers with NaN, infinities and extremes, on the cores of this machine
# (half an hour): make sanitize-ops ARGS='--kinds quantize,cast --cores plain'
sanitize-ops: setup
	$(BIN)/python -m tests.conformance.sanitizing $(ARGS)

# Writes requirements.lock anew: what CI installs, by version and hash; of the newest that pyproject.toml allows
lock: setup
	$(BIN)/python tools/lock.py

# Whether edgec bench tells the truth on this machine; 300 benches at the end take most of an hour:
# make bench-check ARGS='--only wait,percentiles,profile' leaves them out
bench-check: setup
	$(BIN)/python -m benchmarks.bench_check $(ARGS)

# edgec's way of measuring beside TFLite's own benchmark tool, on the same files with the same engine
bench-peers: setup
	$(BIN)/python -m benchmarks.bench_peers $(ARGS)

# The compiled code beside LiteRT, onnxruntime and OpenVINO (reads ../shared): make bench-host ARGS='--models mnv2_tf2_i8'
bench-host: setup
	$(BIN)/python -m benchmarks.bench_host $(ARGS)

# 2,000 broken flashes, each seed printed when it goes wrong; make faults SEED=100 CASES=50 runs others
SEED ?= 0
CASES ?= 2000
faults: setup
	$(BIN)/python -m tests.devices.faults --cases $(CASES) --seed $(SEED)

# Whether a stream's stages overlap, how long frames wait, and what the Edge TPU's process costs; needs a machine that does
# nothing else: make stream-check ARGS='--only overlap'
stream-check: setup
	$(BIN)/python -m benchmarks.stream_check $(ARGS)

# A stream whose Edge TPU fails, hangs, crashes and vanishes 500 times: make delegate-faults ARGS='--cases 1000 --seed 7'
delegate-faults: setup
	$(BIN)/python -m benchmarks.delegate_faults $(ARGS)

# The time of a call through our drivers of a stick beside libedgetpu's (reads ../shared)
bench-stick-calls: setup
	$(BIN)/python -m benchmarks.bench_stick_calls $(ARGS)

# Our driver of a Coral stick on the emulated one, with 5,000 random schedules of faults (hours):
# make stick-faults ARGS='--cases 100 --seed 7 --language c'
stick-faults: setup
	$(BIN)/python -m tests.stick.schedules $(ARGS)

# 200 storms in which the stick is pulled out and put in again, over a session, a webcam, a program and a service (an hour)
stick-storms: setup
	$(BIN)/python -m pytest -rs -s --sweep tests/stick/test_storms.py

# A cascade over 10,000 frames: make cascade-check ARGS='--frames 1000'
cascade-check: setup
	$(BIN)/python -m benchmarks.cascade_check $(ARGS)

# edgec serve with 20 cameras for 10 minutes, and 3,000 bad requests: make serve-load ARGS='--minutes 1'
serve-load: setup
	$(BIN)/python -m benchmarks.serve_load $(ARGS)

# 100,000 runs from 8 threads, 10,000 sessions opened and closed, 500 forks while others run:
# make endurance ARGS='--forks 50'
endurance: setup
	$(BIN)/python -m benchmarks.endurance $(ARGS)

# Damaged real networks through edgec explain, within 1 GB and 60 s (reads ../shared):
# make fuzz-models CASES=10000 SEED=1
fuzz-models: setup
	$(BIN)/python -m benchmarks.fuzzing.readers --only network_onnx,network_tflite --cases $(CASES) --seed $(SEED) $(ARGS)

# Damaged files and messages of every kind, each read within 2 GB and 60 s; what went wrong is kept in build/fuzz-readers:
# make fuzz-readers CASES=20000 SEED=1 ARGS='--only onnx,toml'
fuzz-readers: setup
	$(BIN)/python -m benchmarks.fuzzing.readers --cases $(CASES) --seed $(SEED) $(ARGS)

# Forged, replayed, relabelled and planted bundles, manifests that lie, frames, labels and names, and strangers and costly
# pictures at the webcam's page: each must be refused and the device unchanged;
# make attacks ARGS=--mutate takes out the check that refuses each, which must then succeed
attacks: setup
	$(BIN)/python -m tests.devices.attacks $(ARGS)

# What int8 costs, beside public quantizers, which it installs under build/ (reads ../shared; hours for all models):
# make accuracy-table ARGS='--models resnet8_f32,mnv1_025_224_f32 --ways best,fast'
accuracy-table: setup
	$(BIN)/python -m benchmarks.accuracy_table $(ARGS)

# ONNX's own node tests through edgec's C, by operator: passed, failed, out of scope (build/conformance.md; a few minutes);
# make conformance ARGS='--cases test_topk --device INTERP'
conformance: setup
	$(BIN)/python -m benchmarks.conformance $(ARGS)

# Random graphs of every op, each by interp, the passes, C, onnxruntime and LiteRT; a failure is shrunk, printed as text and
# kept in build/graph-fuzz (1,000 graphs take some minutes): make fuzz CASES=10000 SEED=7
fuzz: setup
	$(BIN)/python -m benchmarks.graph_fuzz --cases $(CASES) --seed $(SEED) $(ARGS)

# Every node test of the onnx package through edgec, and each in every element type up to C: takes some minutes
onnx-sweep: setup
	$(BIN)/python -m benchmarks.onnx_sweep

# Networks of PyTorch through both of its exporters: tests/torch, with the extra edgec[torch] in an environment of its own
# (some 200 MB to 3 GB, as the platform has it)
test-torch: setup
	$(PYTHON) -m venv --system-site-packages build/venv-torch
	build/venv-torch/bin/python -m pip install --quiet -e '.[dev,torch]' torchvision
	build/venv-torch/bin/python -m pytest -rs tests/torch

# Networks that Python packages bring along (140 MB, without what these depend on), as what runs them there computes them
packaged-models: setup
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target build/packages silero-vad pymicro-wakeword ddddocr \
	    rapidocr-onnxruntime basic-pitch nudenet
	PYTHONPATH=build/packages $(BIN)/python -m pytest tests/compile/test_packaged_models.py $(ARGS)

# Whether avatars mirror 12 known motions of a face in 3 portraits, with float and int8 networks: a table and a sheet of
# pictures in build/mirror-check (reads ../shared; four minutes): make mirror-check ARGS='--clips blink,wink --float'
mirror-check: setup
	$(BIN)/python -m benchmarks.mirror_check $(ARGS)

# Wheels, a Debian package, a container, a Home Assistant add-on, a playbook, checksums, bill of materials and changelog of
# the last commit in build/release, always the same bytes (docs/releasing.md): nothing is uploaded
release: setup
	$(BIN)/python -m tools.release

# The pages of docs/ and the API reference as a site in build/site; a warning is an error
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

fixtures:
	$(PYTHON) -m venv $(FIXTURES)
	$(FIXTURES)/bin/python -m pip install --quiet -r fixtures/requirements.txt
	$(FIXTURES)/bin/python fixtures/make.py

clean:
	rm -rf build .venv .venv-tflite-runtime
