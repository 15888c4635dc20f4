#pragma once

#include <string>

// Paths of the sources and of the build. They are compiled into one small file, not passed to each
// compiler, so that a compiler cache knows the tests of one clone in every other.
namespace muster {

extern const char kSourceFolder[];
extern const char kBuildFolder[];

#ifndef MUSTER_BIN_FOLDER  // where the programs under test are, in the build
#define MUSTER_BIN_FOLDER "bin"
#endif

inline std::string SourcePath(const std::string& path) {
  return std::string(kSourceFolder) + "/" + path;
}
inline std::string ConfigPath(const std::string& path) { return SourcePath("configs/" + path); }
inline std::string BuildPath(const std::string& path) {
  return std::string(kBuildFolder) + "/" + path;
}
inline std::string BinDir() { return BuildPath(MUSTER_BIN_FOLDER); }
inline std::string BinPath(const std::string& program) { return BinDir() + "/" + program; }

// Stand-ins for the libraries of NVIDIA's driver (tests/cli/gpu).
inline std::string FakeDriverDir() { return BuildPath("tests/cli/fake_driver"); }
inline std::string FakeNvml() { return FakeDriverDir() + "/libnvidia-ml.so.1"; }
inline std::string FakeCuda() { return FakeDriverDir() + "/libcuda.so.1"; }
// Lets system calls fail in a program that preloads it (tests/e2e/faults.cc).
inline std::string FaultsLibrary() { return BuildPath("tests/e2e/libe2e_faults.so"); }

}  // namespace muster
