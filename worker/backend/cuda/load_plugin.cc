#include "worker/backend/cuda/load_plugin.h"

#include <dlfcn.h>

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/config/cuda_plugin_files.h"
#include "cuda_sources.h"  // made by sources_hash.cmake

#ifndef MUSTER_CUDA_LIBRARY_FOLDERS
#define MUSTER_CUDA_LIBRARY_FOLDERS ""
#define MUSTER_CUDA_VERSION ""
#endif

namespace muster {
namespace {

std::vector<std::string> Split(const std::string& folders) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < folders.size();) {
    const size_t end = std::min(folders.find(':', begin), folders.size());
    if (end > begin) parts.push_back(folders.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string FindPlugin() {
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  std::error_code ignored;
  for (const char* const file : kCudaPluginFiles) {
    for (const auto& folder : {here, here / ".." / "lib"}) {
      const std::filesystem::path plugin = (folder / file).lexically_normal();
      if (std::filesystem::exists(plugin, ignored)) return plugin.string();
    }
  }
  throw NoGpu(
      ExitCode::kFailure,
      "this build of Muster has no CUDA backend: {} is neither next to muster-worker ({}) nor in "
      "../lib; install its wheel (muster_train_cuda13) or package, or build it with the CUDA "
      "toolkit (docs/GPUS.md), or set worker.backend=CPU",
      kCudaPluginFiles[0], here.string());
}

// "libcublas.so.13: cannot open shared object file: …" → libcublas.so.13
std::optional<std::string> MissingLibrary(const std::string& message) {
  const size_t colon = message.find(": cannot open shared object file");
  if (colon == std::string::npos || message.find('/') < colon) return std::nullopt;
  return message.substr(0, colon);
}

std::string LastError() {
  const char* const message = ::dlerror();
  return message == nullptr ? "" : message;
}

// Returns a text such as " of CUDA 13.0", or nothing if the version is unknown.
std::string OfVersion() {
  constexpr const char* kVersion = MUSTER_CUDA_VERSION;
  return *kVersion == '\0' ? "" : std::string(" of CUDA ") + kVersion;
}

// Explains the loader's message: the file is not a valid library, or lacks a symbol.
[[noreturn]] void ThrowUnloadable(const std::string& message) {
  const bool lacks = message.find("undefined symbol") != std::string::npos ||
                     message.find("version `") != std::string::npos;
  if (lacks) {
    throw NoGpu(
        ExitCode::kFailure,
        "cannot load the CUDA backend: {}: a library is too old or from another release; put the "
        "folder of the CUDA toolkit's cuBLAS{} first on LD_LIBRARY_PATH, or set worker.backend=CPU",
        message, OfVersion());
  }
  throw NoGpu(ExitCode::kFailure,
              "cannot load the CUDA backend: {}; reinstall Muster, or set worker.backend=CPU",
              message);
}

// Opens a library. If dependencies are missing, first opens them from the folders, so that the
// loader finds them by name. `depth` limits circular dependencies.
void* Open(const std::string& path, const std::vector<std::string>& folders, int depth) {
  for (int attempt = 0;; ++attempt) {
    if (void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    const std::string message = LastError();
    const std::optional<std::string> missing = MissingLibrary(message);
    void* found = nullptr;
    for (const std::string& folder : folders) {
      if (!missing || found != nullptr || attempt == 8 || depth == 4) break;
      const std::string candidate = folder + "/" + *missing;
      std::error_code ignored;
      if (std::filesystem::exists(candidate, ignored)) {
        found = Open(candidate, folders, depth + 1);
      }
    }
    if (found != nullptr) continue;
    if (!missing) ThrowUnloadable(message);
    throw NoGpu(ExitCode::kFailure,
                "the CUDA backend needs {}, which was not found; install the CUDA toolkit's "
                "cuBLAS{} or, beside muster-train, NVIDIA's wheel of it, or add its folder to "
                "LD_LIBRARY_PATH, or set worker.backend=CPU",
                *missing, OfVersion());
  }
}

// Lets the plugin find cuDNN by name, if cuDNN is installed. Where the plugin looks comes first:
// the RUNPATH of a wheel leads to NVIDIA's wheels.
void OpenCudnn(CudaPluginOpenCudnn& open_by_name, const std::vector<std::string>& folders) {
  if (open_by_name()) return;
  for (const std::string& folder : folders) {
    if (::dlopen((folder + "/libcudnn.so.9").c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr) return;
  }
  (void)LastError();
}

template <typename Function>
Function* Find(void* library, const char* name, const std::string& path) {
  void* const symbol = ::dlsym(library, name);
  if (symbol == nullptr) {
    throw NoGpu(ExitCode::kFailure,
                "{} is not a CUDA backend of this build of Muster: it has no {}; install programs "
                "and plugin from the same build, or set worker.backend=CPU",
                path, name);
  }
  return reinterpret_cast<Function*>(symbol);
}

// Returns the plugin and its path.
std::pair<void*, std::string> OpenPlugin(const std::vector<std::string>& folders) {
  const std::string path = FindPlugin();
  void* const library = Open(path, folders, 0);
  const std::string build = Find<CudaPluginBuild>(library, kCudaPluginBuildName, path)();
  if (build == kCudaSources) return {library, path};
  throw NoGpu(ExitCode::kFailure,
              "{} is from another build of Muster: expected sources {}, got {}; install programs "
              "and plugin from the same build, or set worker.backend=CPU",
              path, kCudaSources, build);
}

}  // namespace

// Returns the folders in which the build found the libraries, and those that NVIDIA's packages and
// installer use.
std::string CudaLibraryFolders() {
  return std::string(MUSTER_CUDA_LIBRARY_FOLDERS) +
         ":/usr/local/cuda/lib64:/usr/local/cuda/targets/x86_64-linux/lib";
}

CudaWorker LoadCudaWorker(const CudaOptions& options, const std::string& folder_list) {
  const std::vector<std::string> folders = Split(folder_list);
  const auto [library, path] = OpenPlugin(folders);
  if (options.convolution != CudaOptions::Convolution::kGemm) {
    OpenCudnn(*Find<CudaPluginOpenCudnn>(library, kCudaPluginOpenCudnnName, path), folders);
  }
  CudaWorker worker;
  Find<CudaPluginMake>(library, kCudaPluginMakeName, path)(options, worker);
  return worker;
}

std::unique_ptr<GpuAdder> LoadGpuAdder(const CudaOptions& options, const std::string& folder_list) {
  const auto [library, path] = OpenPlugin(Split(folder_list));
  std::unique_ptr<GpuAdder> adder;
  Find<CudaPluginAdder>(library, kCudaPluginAdderName, path)(options, adder);
  return adder;
}

}  // namespace muster
