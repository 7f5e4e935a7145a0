# Shared by the scripts, which source it: strict mode, the root of the tree, messages, --help.
# shellcheck shell=bash
set -euo pipefail
shopt -s inherit_errexit

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# ccache then finds what another build folder, or another clone, has compiled.
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=true

say() { printf '%s: %s\n' "$(basename "$0")" "$*"; }
fail() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# --help prints the comment at the top of the script.
help_if_asked() {
  case ${1-} in
    -h | --help)
      sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
  esac
}

# Compilers to run at once: one per core, and 1 GiB of memory for each.
parallel_jobs() {
  local cores memory_gib
  cores=$(nproc)
  memory_gib=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)
  if ((memory_gib < cores)); then cores=$((memory_gib > 0 ? memory_gib : 1)); fi
  echo "$cores"
}
