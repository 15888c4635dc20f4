// A .tar.gz of a data set writes nothing outside of the folder that it is unpacked to, nothing but
// plain files, and not many of them.
#include "launch/data/unpack.h"
#include "tests/fuzz/fuzz.h"

namespace muster::fuzz {
namespace {

namespace fs = std::filesystem;

void Check(const Folder& folder, std::string_view bytes) {
  folder.Clear();
  const std::string archive = folder.Write("a.tar.gz", bytes);
  fs::create_directory(folder / "to");
  OrError(archive, [&] { Unpack(archive, "set", folder / "to"); });
  int files = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder.path())) {
    const bool expected = entry.path() == archive || entry.path() == folder / "to" ||
                          entry.path().parent_path() == folder / "to";
    Require(expected, "something lies outside of the folder");
    Require(entry.symlink_status().type() == fs::file_type::directory ||
                entry.symlink_status().type() == fs::file_type::regular,
            "something is no plain file");
    ++files;
  }
  Require(files < 110, "a great many files");
}

}  // namespace
}  // namespace muster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::fuzz::SilenceLogs();
  static const muster::fuzz::Folder folder;
  muster::fuzz::Check(folder, {reinterpret_cast<const char*>(data), size});
  return 0;
}
