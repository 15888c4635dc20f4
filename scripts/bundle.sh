# shellcheck shell=bash
# Common parts of the scripts that make packages of Muster, which source this file.

# Libraries of every Linux with glibc, which are not bundled.
# shellcheck disable=SC2034  # for the scripts that source this
system='^(ld-linux-x86-64|libc|libm|libdl|librt|libpthread|libresolv|libanl|libutil|libstdc\+\+|libgcc_s)\.so'

# The static libarchive: the shared one depends on 36 MB of other libraries.
static_libarchive() { find /usr/lib -name libarchive.a -print -quit | grep .; }

# libraries_of FILE ...: a line "SONAME PATH" for each shared library that the files need.
libraries_of() { ldd "$@" | awk '$2 == "=>" { print $1, $3 }' | sort -u; }

# pack FOLDER NAME ...: writes these entries of the folder as .tar.gz. Equal files give equal bytes: git archive gives
# every source the time of the commit.
pack() {
  tar -C "$1" --sort=name --mtime="@$(stat -c %Y CMakeLists.txt)" --mode=go=rX,u=rwX --owner=0 --group=0 \
    --numeric-owner -cf - "${@:2}" |
    gzip -9n
}
