// A small file system at Path("small"), visible only to the test and its children.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <system_error>

#include "common/tensors/safetensors_reader.h"
#include "tests/e2e/real_job.h"

namespace muster::testing {

// The metadata in a weights file.
inline std::map<std::string, std::string> MetadataIn(const std::filesystem::path& file) {
  return SafetensorsReader(file).header().metadata;
}

class SmallDisk : public RealJob {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(Path("small"));
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 || !Mount("size=256k")) {
      // EINVAL: this is a chroot whose root is not a mount point.
      GTEST_SKIP() << "needs root, and a root folder that is a mount point: "
                   << std::generic_category().message(errno);
    }
  }
  ~SmallDisk() override { ::umount2(Path("small").c_str(), MNT_DETACH); }

  bool Mount(const char* size, unsigned long flags = 0) const {
    return ::mount("tmpfs", Path("small").c_str(), "tmpfs", flags, size) == 0;
  }
  // Fills the rest of the disk.
  void Fill() const {
    std::ofstream file(Path("small") / "fill", std::ios::binary);
    const std::string block(4096, 'x');
    while (file.write(block.data(), 4096).flush()) continue;
  }
};

}  // namespace muster::testing
