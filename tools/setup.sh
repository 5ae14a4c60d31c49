# shellcheck shell=bash
# Sourced by tools/demo and tools/test: what they need from the distribution, and how they say what they do.

# Packages of Debian 12 and later and of Ubuntu 24.04, by purpose. This is the only list.
# shellcheck disable=SC2034  # used by who sources this
packages_tools="g++ cmake ninja-build ccache pkgconf"
# shellcheck disable=SC2034
packages_libraries="
  libfmt-dev nlohmann-json3-dev libtomlplusplus-dev libcli11-dev
  libboost-dev libcereal-dev libmpfr-dev libgmp-dev libopenblas-dev libhwy-dev libsleef-dev libxtensor-dev
  libspdlog-dev libhdf5-dev libre2-dev zlib1g-dev libssl-dev libglpk-dev libyaml-dev"
# shellcheck disable=SC2034
packages_build="$packages_tools $packages_libraries libopenmpi-dev openmpi-bin"
# shellcheck disable=SC2034
packages_test="
  libgtest-dev libgmock-dev libbenchmark-dev
  clang-format shellcheck python3-jsonschema"
# shellcheck disable=SC2034
packages_aarch64="g++-aarch64-linux-gnu qemu-user"
# Runs the programs that its tests start.
# shellcheck disable=SC2034
packages_aarch64_programs="qemu-user-binfmt binfmt-support"
# shellcheck disable=SC2034
packages_python="python3 python3-dev python3-venv"
# Opens the HTML report in a test, which is skipped without it. Ubuntu has no such package, only a snap.
# shellcheck disable=SC2034
packages_browser=""
if grep -qs '^ID=debian' /etc/os-release; then packages_browser="chromium"; fi

say() { printf '== %s\n' "$*"; }
# step TEXT: what comes now, and how long the step before took. finish TEXT: the last one, and the whole.
step() {
  if [ -n "${step_text:-}" ]; then say "  $((SECONDS - step_start)) s"; fi
  step_text=$1 step_start=$SECONDS
  say "$1"
}
finish() {
  if [ -n "${step_text:-}" ]; then say "  $((SECONDS - step_start)) s"; fi
  say "$1, in $SECONDS s"
}
die() {
  printf 'error: %s\n' "$*" >&2
  exit 2
}

# install_packages NAME..: what is missing of them, from the distribution; nothing if all are there.
install_packages() {
  local package missing=() root=()
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "packages: this is neither Debian nor Ubuntu, so these are taken to be there: $*"
    return
  fi
  for package in "$@"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  if [ ${#missing[@]} -eq 0 ]; then
    say "packages: all $# are installed"
    return
  fi
  say "packages: installing ${missing[*]}"
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "these packages are missing and sudo is not there to install them; run as root"
    root=(sudo)
  fi
  # An update can fail for a repository that is not needed here; the installation decides.
  run apt "${root[@]}" apt-get -q update || true
  run apt "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install "${missing[@]}" ||
    die "apt-get could not install them"
}

# run NAME COMMAND..: its output goes to build/logs/NAME.log, and to the screen if it fails.
run() {
  local log="build/logs/$1.log" status=0
  shift
  mkdir -p build/logs
  "$@" >"$log" 2>&1 </dev/null || status=$?
  [ "$status" -eq 0 ] && return
  tail -n 100 "$log" >&2
  local command="$*"
  [ "${#command}" -le 200 ] || command="${command:0:200} .."
  printf 'error: status %d from: %s\n(above is the end of %s)\n' "$status" "$command" "$log" >&2
  return "$status"
}

# make_python: a virtual environment with what tools/python/requirements.txt lists, in build/venv. It is made anew when
# the list changes.
make_python() {
  local list=tools/python/requirements.txt made=build/venv/requirements.txt
  if cmp -s "$list" "$made"; then
    say "python: build/venv is as $list says"
    return
  fi
  rm -rf build/venv
  run venv python3 -m venv build/venv || return
  run pip build/venv/bin/python -m pip install --disable-pip-version-check -r "$list" || return
  cp "$list" "$made"
}

# make_aarch64_root NAME..: these libraries of this Debian release for aarch64, unpacked in build/aarch64-root.
make_aarch64_root() {
  local place=build/aarch64-root apt=$PWD/build/aarch64-apt options package
  if [ "$(cat "$place/made-of" 2>/dev/null)" = "$*" ]; then
    say "$place is made of these packages"
    return
  fi
  rm -rf "$place" "$apt"
  mkdir -p "$place/usr/lib" "$apt"/{parts,state/lists/partial,cache/archives/partial}
  touch "$apt/status"
  # shellcheck source=/dev/null
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $(. /etc/os-release && echo "$VERSION_CODENAME") main" >"$apt/parts/debian.list"
  # Nothing of this machine's own packages is read or changed.
  options=(-o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$apt/parts" -o Dir::State="$apt/state" -o Dir::State::Status="$apt/status"
    -o Dir::Cache="$apt/cache" -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Debug::NoLocking=1)
  [ "$(id -u)" -ne 0 ] || options+=(-o APT::Sandbox::User=root)
  run apt-aarch64 apt-get -q "${options[@]}" update || return
  run apt-aarch64 apt-get -q -y "${options[@]}" --download-only --no-install-recommends install "$@" || return
  ln -s usr/lib "$place/lib"
  for package in "$apt"/cache/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink -C "$place" || return
  done
  # What update-alternatives would do.
  ln -s openblas-pthread/libopenblas.so openblas-pthread/libopenblas.so.0 "$place/usr/lib/aarch64-linux-gnu/"
  rm -rf "$apt"
  echo "$*" >"$place/made-of"
}

# build PRESET TARGETS [CMAKE OPTION..]: configures and builds. On a terminal ninja shows how far it is.
build() {
  local preset=$1 targets
  read -ra targets <<<"$2"
  shift 2
  export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
  run "configure-$preset" cmake --preset "$preset" "$@" || return
  if [ -t 1 ]; then
    cmake --build --preset "$preset" --target "${targets[@]}"
  else
    run "build-$preset" cmake --build --preset "$preset" --target "${targets[@]}"
  fi
}
