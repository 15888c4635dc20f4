// Unpacking a data set's .tar.gz only writes regular files, a limited number of them, and none
// outside of its folder.

#include <algorithm>
#include <cstdio>

#include "cli/data/download.h"
#include "tests/fuzz/fuzz.h"

namespace muster::fuzz {
namespace fuzz_archive {

namespace fs = std::filesystem;

constexpr size_t kBlock = 512;

// An entry's header with a valid checksum, which a fuzzer could not guess.
std::string Head(const std::string& name, char type, const std::string& link, uint64_t bytes) {
  std::string head(kBlock, '\0');
  const auto put = [&](size_t at, size_t most, const std::string& text) {
    head.replace(at, std::min(most, text.size()), text.substr(0, most));
  };
  const auto octal = [](int digits, uint64_t number) {
    char text[32];
    std::snprintf(text, sizeof text, "%0*llo", digits, static_cast<unsigned long long>(number));
    return std::string(text);
  };
  put(0, 100, name);
  put(100, 8, octal(7, 0644));
  put(124, 12, octal(11, bytes));
  put(148, 8, "        ");
  head[156] = type;
  put(157, 100, link);
  put(257, 8, std::string("ustar\00000", 8));
  unsigned sum = 0;
  for (const char byte : head) sum += static_cast<unsigned char>(byte);
  put(148, 8, octal(6, sum % 0777777) + std::string("\0 ", 2));
  return head;
}

// The input has, for each entry, its type, its name within the folder or as it is, a link's target,
// its bytes and, rarely, a wrong size.
std::string TarOf(Input input) {
  constexpr char kTypes[] = {'0', '0', '0', '5', '1', '2', '3', 'L', 'K', 'x', 'g', 'S'};
  std::string tar;
  while (!input.empty()) {
    const uint8_t how = input.Byte();
    const char type = how % 16 < sizeof kTypes ? kTypes[how % 16] : static_cast<char>(input.Byte());
    std::string name = input.Piece();
    if ((how & 16) != 0) name = "set/" + name;
    const std::string link = (how & 32) != 0 ? input.Piece() : "";
    const std::string bytes = input.Piece();
    const bool lies = (how & 192) == 192;
    tar += Head(name, type, link, lies ? input.Number<uint32_t>() : bytes.size());
    tar += bytes + std::string((kBlock - bytes.size() % kBlock) % kBlock, '\0');
  }
  return tar + std::string(2 * kBlock, '\0');
}

// If the first byte is 0, the rest is the file. Otherwise a tar is built from it.
std::string FileOf(Input input) { return input.Byte() == 0 ? input.Rest() : TarOf(input); }

void Check(const Folder& folder, std::string_view bytes) {
  folder.Clear();
  const std::string archive = folder.Write("a.tar.gz", bytes);
  fs::create_directory(folder / "to");
  OrError(archive, [&] { Unpack(archive, "set", folder / "to"); });
  int files = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder.path())) {
    const bool expected = entry.path() == archive || entry.path() == folder / "to" ||
                          entry.path().parent_path() == folder / "to";
    Require(expected, "an entry is outside of the folder");
    Require(entry.symlink_status().type() == fs::file_type::directory ||
                entry.symlink_status().type() == fs::file_type::regular,
            "an entry is not a regular file");
    ++files;
  }
  Require(files < 110, "too many files");
}

}  // namespace fuzz_archive
}  // namespace muster::fuzz

FUZZ_TARGET(archive) {
  muster::fuzz::SilenceLogs();
  static const muster::fuzz::Folder folder;
  muster::fuzz::fuzz_archive::Check(folder, muster::fuzz::fuzz_archive::FileOf({data, size}));
  return 0;
}
