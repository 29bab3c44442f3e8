#!/bin/sh
# Makes the virtual environment, and brings it up to date: `sh scripts/set_up.sh [dev]`.
#
# Owns .venv and the copies of what was installed in .venv/installed; knows nothing of the program itself.
# Only what changed is installed, so that a second call takes no time and needs no network.
# VENV: its folder. PYTHON: the interpreter to use. GPU=0: nothing for a graphics card.
set -u
cd "$(dirname "$0")/.." || exit 1

venv=${VENV:-.venv}
installed=$venv/installed
requirements=requirements.txt
[ "${1:-}" = dev ] && requirements=requirements-dev.txt

fail() {
    for line in "$@"; do
        printf '%s\n' "$line" >&2
    done
    exit 1
}

# Says the name of the first interpreter that is new enough and can make environments.
find_python() {
    without_venv=
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.14 python3.11}; do
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
        if "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
            echo "$candidate"
            return
        fi
        without_venv=$candidate
    done
    if [ -n "$without_venv" ]; then
        fail "$without_venv cannot make virtual environments: its venv module is missing." \
            "On Debian and Ubuntu: sudo apt install python3-venv. Then run the same command again."
    fi
    fail "Tandem needs Python 3.11 or newer; ${PYTHON:-python3} is $("${PYTHON:-python3}" -V 2>/dev/null || echo missing)." \
        "Install one (Debian: sudo apt install python3 python3-venv; macOS: brew install python)," \
        "or name it: make chat PYTHON=/path/to/python3.12"
}

# Whether an interpreter is the one that was asked for by name; any will do when none was.
is_wanted() {
    which_one='import sys; print(sys.version_info[:3], sys.base_prefix)'
    [ -z "${PYTHON:-}" ] || [ "$("$PYTHON" -c "$which_one" 2>/dev/null)" = "$("$1" -c "$which_one")" ]
}

# An environment is of no use when its interpreter is gone or the folder has moved (its scripts hold absolute paths).
make_environment() {
    here=$(pwd)/$venv
    if [ "$(cat "$installed/place" 2>/dev/null)" = "$here" ] && "$venv/bin/python" -c '' 2>/dev/null &&
        is_wanted "$venv/bin/python"; then
        return
    fi
    python=$(find_python) || exit 1
    echo "Making the environment $venv with $("$python" -V) ..."
    "$python" -m venv --clear "$venv" || fail "The environment $venv could not be made; the lines above say why."
    mkdir -p "$installed" && echo "$here" >"$installed/place"
}

# Installs a pinned file unless it is the one that was installed last.
install_pinned() {
    cmp -s "$1" "$installed/$1" && return
    echo "Installing what $1 lists (only when it has changed) ..."
    "$venv/bin/python" -m pip install --disable-pip-version-check --require-hashes --only-binary=:all: -r "$1" ||
        fail "" "What $1 lists could not be installed; the lines above say why." \
            "This needs a network, once. Run the same command again: finished downloads are kept."
    cp "$1" "$installed/$1"
}

install_project() {
    cmp -s pyproject.toml "$installed/pyproject.toml" && return
    "$venv/bin/python" -m pip install --disable-pip-version-check --quiet --no-index --no-deps --no-build-isolation \
        --config-settings editable_mode=compat --editable . ||
        fail "" "Tandem itself could not be installed into $venv; the lines above say why."
    cp pyproject.toml "$installed/pyproject.toml"
}

make_environment || exit 1
# The dev file holds everything that the other one does, in the same versions.
if [ $requirements = requirements-dev.txt ] || ! cmp -s requirements.txt "$installed/requirements.txt"; then
    install_pinned $requirements
    [ $requirements = requirements-dev.txt ] && cp requirements.txt "$installed/requirements.txt"
fi
for_gpu=$(sh scripts/gpu_requirements.sh)
[ -n "$for_gpu" ] && install_pinned "$for_gpu"
install_project
