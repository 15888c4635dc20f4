# shellcheck shell=bash
# What packages of Muster have in common. To be sourced by scripts that make one.

# What every Linux with glibc has, and what belongs to its glibc. Not bundled.
# shellcheck disable=SC2034  # for the scripts that source this
system='^(ld-linux-x86-64|libc|libm|libdl|librt|libpthread|libresolv|libanl|libutil|libstdc\+\+|libgcc_s)\.so'

# The static libarchive, since the shared one brings 36 MB of others.
static_libarchive() { find /usr/lib -name libarchive.a -print -quit | grep .; }

# libraries_of FILE ...: a line "SONAME PATH" for each shared library that the files need.
libraries_of() { ldd "$@" | awk '$2 == "=>" { print $1, $3 }' | sort -u; }

# pack FOLDER NAME ...: these of the folder as .tar.gz, the same bytes each time.
pack() { tar -C "$1" --sort=name --owner=0 --group=0 --numeric-owner -cf - "${@:2}" | gzip -9n; }
