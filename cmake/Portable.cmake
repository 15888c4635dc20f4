# MUSTER_PORTABLE is for packages. With it, what Debian 12's compiler links also runs with RHEL 9's glibc 2.34 and
# libstdc++ (GLIBCXX_3.4.29); scripts/check_symbols.sh checks this. Only std::condition_variable::wait is newer
# (GLIBCXX_3.4.30), in Muster's own code and in libzmq, which is therefore linked statically.
if(MUSTER_PORTABLE)
  find_library(MUSTER_LIBZMQ_ARCHIVE libzmq.a REQUIRED)
  # With what Debian's needs; its libzmq.pc also lists libraries of these.
  set_property(TARGET PkgConfig::ZMQ PROPERTY INTERFACE_LINK_LIBRARIES ${MUSTER_LIBZMQ_ARCHIVE}
                                              gssapi_krb5 sodium pgm norm bsd)
endif()

# muster_portable(TARGET): makes a program or a shared library portable, if the build is.
function(muster_portable target)
  if(MUSTER_PORTABLE)
    target_link_libraries(${target} PRIVATE $<TARGET_OBJECTS:muster_portable_wait>)
    target_link_options(${target} PRIVATE -Wl,--as-needed
                        -Wl,--wrap=_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE)
  endif()
endfunction()
