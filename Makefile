# Every target sets itself up: a bare machine needs Python 3.11 or newer and make, nothing else.
# Go is used to build the real control plane; where it is missing, it is installed with pip.
# Tests run on some more workers than there are cores, up to eight (tests/parallel.py).
# Benchmarks take further arguments in ARGS: `make bench ARGS="--output json"`.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
IMAGE ?= starsched:$(VERSION)
OUTPUT ?= type=docker
# The supported minor versions of Kubernetes, oldest first, and those whose plugins can be asked.
MINORS = $(shell $(BIN)/python devkit/controlplane/build.py --minors)
ORACLES = $(shell $(BIN)/python devkit/controlplane/build.py --oracles)
ON_EVERY_MINOR := tests/contract tests/engine/app/test_story.py tests/deploy/test_account.py tests/parity/test_side_by_side.py
OVER_MINORS := tests/faults/test_an_upgrade_of_the_cluster.py
PYTEST := $(BIN)/python -m pytest -n auto --dist loadgroup
# Another checkout's packages or a user's site must not change what is tested.
export PYTHONNOUSERSITE := 1
# Without bytecode, each worker and each process that a test starts compiles everything again.
unexport PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo fast check test test-long test-versions lint bench bench-core bench-fgd bench-large bench-live bench-openb bench-queues bench-reload bench-rollout bench-trees bench-upstream chaos fuzz fuzz-parity fuzz-shares simulate-faults simulate-planted mutants controlplane openapi oracle chromium wheels lock docs monitoring chart site site-release image image-digests release version clean

##@ Start

help: ## show this list
	@echo "usage: make TARGET"
	@awk -F ':[^#]*## ' '/^##@ / { print "\n" substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## install everything into .venv; the command is .venv/bin/starsched

$(STAMP): requirements-dev.lock pyproject.toml devkit/tools/setup.sh
	@sh devkit/tools/setup.sh $(VENV)
	@touch $@

demo: setup ## place an example cluster's pods, edit a policy live (KEEP=1 leaves it running; SCENARIO=gpu, ...)
	@$(BIN)/starsched demo $(if $(SCENARIO),--scenario $(SCENARIO)) $(if $(KEEP),--keep)

##@ Check

lint: setup ## format, lint, types, imports and policies, no tests
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/starsched fmt --check policies
	$(BIN)/starsched check --strict policies deploy

fast: setup ## format, lint and the quick tests that a change concerns (less than a minute)
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(PYTEST) -q -p tests.quick -p tests.affected

check: lint ## format, lint, types, imports, policies and all quick tests (a few minutes)
	$(PYTEST) -q -p tests.quick

# A skipped test is a failed one here (tests/no_skips.py): nothing that needs the real control
# plane can drop out unseen. Nor may a test leave files in the checkout (tests/no_leftovers.py).
test: lint controlplane oracle chromium wheels ## what must pass: linters and tests, on the real control plane too (half an hour)
	$(PYTEST) -p tests.no_skips -p tests.no_leftovers -m "not long"

# What takes minutes each, and searches that find more the longer they run. Hours, all together.
test-long: setup controlplane oracle chromium wheels ## the rest: long tests, every minor, random objects, answers and worlds, planted faults
	$(PYTEST) -p tests.no_skips -p tests.no_leftovers -m long
	HYPOTHESIS_PROFILE=thorough $(PYTEST) -p tests.no_skips -p tests.searching -m "not long"
	$(BIN)/python -m tests.contract.compare --count 5000
	@set -e; for minor in $(ORACLES); do \
	  $(BIN)/python -m tests.parity.fuzz --minor $$minor --count 20000; \
	done
	$(BIN)/python -m tests.devkit.faults.planted
	$(BIN)/python -m tests.fuzzing --minutes 2
	$(MAKE) test-versions

# What talks to the API server, and what kube-scheduler answers, on every supported minor.
test-versions: setup ## the tests of the API server and of parity on every supported Kubernetes minor
	$(BIN)/python devkit/controlplane/build.py $(MINORS)
	$(BIN)/python devkit/tools/go_programs.py kustomize
	@set -e; for minor in $(MINORS); do \
	  echo "Kubernetes $$minor"; \
	  KUBERNETES=$$minor $(PYTEST) -q -p tests.no_skips -k "not embedded" $(ON_EVERY_MINOR); \
	done
	KUBERNETES=$(lastword $(MINORS)) $(PYTEST) -q -p tests.no_skips $(OVER_MINORS)

##@ Measure

bench: setup controlplane ## the same load on the real control plane, ours and kube-scheduler
	$(BIN)/python -m devkit.benchmarks.bench $(ARGS)

bench-upstream: setup controlplane ## Kubernetes' own scheduler_perf, ours and kube-scheduler (hours)
	$(BIN)/python -m devkit.benchmarks.bench_upstream $(ARGS)

bench-openb: setup controlplane ## the openb GPU trace, placed on the real control plane
	$(BIN)/python -m devkit.benchmarks.bench_openb $(ARGS)

bench-reload: setup controlplane ## a thousand edits of the policies under load, no pod lost or bound twice
	$(BIN)/python -m devkit.benchmarks.bench_reload $(ARGS)

bench-fgd: setup ## the published comparison of GPU policies, reproduced by simulation (long)
	$(BIN)/python -m devkit.benchmarks.bench_fgd $(ARGS)

bench-large: setup controlplane ## start, hand-over, reload and memory at 5,000 nodes and 30,000 pods
	$(BIN)/python -m devkit.benchmarks.bench_large $(ARGS)

bench-live: setup controlplane ## what live answers take, and what they cost decisions
	$(BIN)/python -m devkit.benchmarks.bench_live $(ARGS)

bench-rollout: setup controlplane ## edits, good and bad, rolled out under load: no bad one decides for many
	$(BIN)/python -m devkit.benchmarks.bench_rollout $(ARGS)

bench-queues: setup ## a day of four tenants by the rules of several packs: who got what it deserved
	$(BIN)/python -m devkit.benchmarks.bench_queues $(ARGS)

bench-trees: setup controlplane ## what trees of queues cost: turns, a start with 10,000 queues, Kueue's own test
	$(BIN)/python -m devkit.benchmarks.bench_trees $(ARGS)

bench-core: setup ## decisions per second of the core alone, no control plane
	$(BIN)/python -m devkit.benchmarks.bench_core $(ARGS)

##@ Build what tests run on

controlplane: setup ## build etcd, kube-apiserver, kube-scheduler, kubectl, kustomize, helm, kwok, Prometheus, promtool, basedpyright (cached outside)
	$(BIN)/python devkit/controlplane/build.py
	$(BIN)/python devkit/tools/go_programs.py actionlint kustomize helm krew kubectl kwok prometheus promtool
	$(BIN)/python devkit/tools/basedpyright/build.py

openapi: controlplane ## write the types of the API as kube-apiserver publishes them (engine/core/manifests/openapi)
	$(BIN)/python devkit/tools/openapi_document.py

# Of each minor version whose plugins can be asked; MINOR=1.38 names one, which needs no control plane.
oracle: $(if $(MINOR),setup,controlplane) ## build the programs that answer with kube-scheduler's own plugins, and with the originals of fair sharing (cached too)
	$(BIN)/python devkit/tools/go_programs.py oracle$(if $(MINOR),-$(MINOR), fairness)

chromium: setup ## install the browser that tests of the page drive (cached too)
	$(BIN)/python devkit/tools/chromium/build.py

wheels: setup ## fetch the wheels of the image for each of its platforms (cached too)
	$(BIN)/python devkit/tools/wheels.py

##@ Look for faults

chaos: setup controlplane ## faults of network and processes on the real control plane for 20 minutes, then checks
	$(BIN)/python -m devkit.benchmarks.chaos $(ARGS)

fuzz: setup ## inputs that are mutated for coverage, for each reader of input (TARGET=name MINUTES=n)
	$(BIN)/python -m tests.fuzzing $(TARGET) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(INPUT),--input $(INPUT)) $(ARGS)

simulate-faults: setup ## worlds full of faults in virtual time until one fails (SEED=n, or HOURS=h)
	$(BIN)/python -m devkit.faults $(if $(SEED),--seed $(SEED)) $(if $(HOURS),--hours $(HOURS)) $(ARGS)

simulate-planted: setup ## a hundred planted faults, each looked for in simulated worlds (an hour of CPU)
	$(BIN)/python -m tests.devkit.faults.planted $(ARGS)

mutants: setup ## a hundred random mutants of each of the core's folders, and which the quick tests miss (ARGS="kernel --seed 2")
	$(BIN)/python -m tests.mutation $(ARGS)

fuzz-parity: oracle ## random clusters, ours and kube-scheduler's plugins (SEED=n COUNT=m MINOR=1.38)
	$(BIN)/python -m tests.parity.fuzz $(if $(MINOR),--minor $(MINOR)) $(if $(SEED),--seed $(SEED)) $(if $(COUNT),--count $(COUNT)) $(ARGS)

fuzz-shares: setup ## random trees of queues, our policies and the originals of fair sharing (SCHEME=kueue COUNT=m SEED=n)
	$(BIN)/python devkit/tools/go_programs.py $(if $(SCHEME),fairness-$(SCHEME),fairness)
	$(BIN)/python -m tests.fairness.fuzz $(if $(SCHEME),--scheme $(SCHEME)) $(if $(SEED),--seed $(SEED)) $(if $(COUNT),--count $(COUNT)) $(ARGS)

##@ Maintain

lock: ## write the lock files from pyproject.toml (UPGRADE=1 moves every version)
	python3 devkit/tools/lock.py $(if $(UPGRADE),--upgrade)

docs: setup ## write the pages of the commands (docs/commands) from their --help, the cookbook from its policies, the figure of the house
	@$(BIN)/python devkit/tools/command_pages.py
	@$(BIN)/python devkit/tools/cookbook_page.py
	@$(BIN)/python devkit/tools/house.py

monitoring: setup ## write dashboards and the PrometheusRule (deploy/monitoring) from their sources
	@$(BIN)/python devkit/tools/monitoring.py
	@$(BIN)/python devkit/tools/chart.py

chart: setup ## write the chart's copies and README (deploy/helm) from their sources
	@$(BIN)/python devkit/tools/chart.py

# The theme reports its own end of life with every build.
site site-release: export NO_MKDOCS_2_WARNING = 1

site: setup ## build the site of the documents into site/, strictly
	$(BIN)/mkdocs build

# Readers choose between the versions; a link into the repository leads to the version's tag.
site-release: setup ## add the site of this version, as the latest, to the local branch gh-pages
	SITE_REVISION=v$(VERSION) PATH=$(abspath $(BIN)):$$PATH $(BIN)/mike deploy --update-aliases $(VERSION) latest
	$(BIN)/mike set-default latest

# The same commit gives the same layers: BuildKit sets their times to the commit's.
image: export SOURCE_DATE_EPOCH = $(shell git log -1 --format=%ct)
image: ## build the container image (needs docker; PLATFORMS=linux/amd64,linux/arm64 IMAGE=name:tag OUTPUT=type=...)
	docker buildx build --tag $(IMAGE) $(if $(PLATFORMS),--platform $(PLATFORMS)) --provenance=false \
	  --build-arg VERSION=$(VERSION) --build-arg REVISION=$$(git rev-parse HEAD) \
	  --build-arg CREATED=$$(date --utc --date @$$SOURCE_DATE_EPOCH +%Y-%m-%dT%H:%M:%SZ) \
	  --output $(OUTPUT),rewrite-timestamp=true $(ARGS) .

image-digests: ## pin the image's base by the digest that its registry has now (ARGS=--check compares)
	python3 devkit/tools/image_digests.py $(ARGS)

release: setup ## make what a release has, of the commit that is checked out, in dist/
	rm -rf dist
	$(BIN)/python devkit/tools/release.py $(ARGS)

version: ## write the version of pyproject.toml into the other files that name it (ARGS=--show prints it)
	@python3 devkit/tools/version.py $(ARGS)

clean: ## remove what setup and the tools wrote into the checkout
	rm -rf $(VENV) build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf .import_linter_cache devkit/benchmarks/results
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
