// `muster export` preserves the contents.
#include <archive.h>
#include <archive_entry.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>

#include "cli/model/export_command.h"
#include "common/tensors/safetensors_writer.h"
#include "tests/data/temp_dir.h"

namespace muster::testing {
namespace {

// The entries of a zip archive. Verifies their checksums.
std::map<std::string, std::string> Unzip(const std::string& path) {
  const std::unique_ptr<archive, decltype(&archive_read_free)> zip(archive_read_new(),
                                                                   archive_read_free);
  archive_read_support_format_zip(zip.get());
  EXPECT_EQ(archive_read_open_filename(zip.get(), path.c_str(), 1 << 16), ARCHIVE_OK);
  std::map<std::string, std::string> entries;
  archive_entry* entry = nullptr;
  while (archive_read_next_header(zip.get(), &entry) == ARCHIVE_OK) {
    std::string& bytes = entries[archive_entry_pathname(entry)];
    bytes.resize(static_cast<size_t>(archive_entry_size(entry)));
    const la_ssize_t size = archive_read_data(zip.get(), bytes.data(), bytes.size());
    EXPECT_EQ(size, std::ssize(bytes)) << archive_error_string(zip.get());
    char more = 0;
    EXPECT_EQ(archive_read_data(zip.get(), &more, 1), 0) << archive_error_string(zip.get());
  }
  EXPECT_EQ(archive_errno(zip.get()), 0) << archive_error_string(zip.get());
  return entries;
}

// Tensors are copied block by block. Includes one that exceeds a block and an empty one.
TEST(ExportTest, TensorsOfEverySize) {
  const TempDir dir;
  const std::string from = (dir / "from.safetensors").string(), out = (dir / "out").string();
  std::vector<float> large((4 << 20) + 3);
  std::iota(large.begin(), large.end(), 0.F);
  {
    SafetensorsWriter writer(
        from, LayOutSafetensors(
                  {{.name = "large", .shape = {std::ssize(large)}}, {.name = "none", .shape = {0}}},
                  {{"step", "7"}}));
    writer.Write(std::as_bytes(std::span(large)));
    writer.Commit();
  }
  (void)ExportModel({.from = from, .format = "safetensors", .out = out});
  EXPECT_EQ(ReadBytes(out), ReadBytes(from));

  const std::string npz = (dir / "out.npz").string();
  (void)ExportModel({.from = from, .format = "npz", .out = npz});
  const std::map<std::string, std::string> entries = Unzip(npz);
  ASSERT_EQ(entries.size(), 2u);
  const std::string& array = entries.at("large.npy");
  const std::string_view numbers(reinterpret_cast<const char*>(large.data()),
                                 large.size() * sizeof(float));
  EXPECT_THAT(array, ::testing::StartsWith("\x93NUMPY\x01"));
  EXPECT_THAT(
      array.substr(0, 128),
      ::testing::HasSubstr("{'descr': '<f4', 'fortran_order': False, 'shape': (4194307,), }"));
  EXPECT_TRUE(std::string_view(array).ends_with(numbers));
  EXPECT_EQ(array.size() - numbers.size(), 128u);
  EXPECT_EQ(entries.at("none.npy").size(), 128u);
}

}  // namespace
}  // namespace muster::testing
