// Reads the parts of an ELF file: a program, a library, or GPU code within one.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace muster::software_gpu {

struct ElfSection {
  std::string name;
  uint32_t type = 0;
  uint32_t link = 0;       // another section, such as a symbol table's names
  uint64_t size = 0;       // after loading
  std::string_view bytes;  // in the file, may be empty
};

struct ElfSymbol {
  std::string_view name;
  unsigned char info = 0;
  uint64_t value = 0;
};

// `file` must outlive the result. Throws Error if it is not a 64-bit ELF file.
std::vector<ElfSection> ReadElfSections(std::string_view file);
// The symbols in the order of the symbol table; empty without one. The names point into the file.
std::vector<ElfSymbol> ReadElfSymbols(const std::vector<ElfSection>& sections);

// Reads a T at this offset. Throws Error beyond the end.
template <typename T>
T ReadAt(std::string_view bytes, uint64_t offset);

// A memory-mapped file: only accessed parts are read.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);  // throws Error
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::string_view bytes() const { return bytes_; }

 private:
  std::string_view bytes_;
};

// Throws Error if the range is outside of `bytes`. Also for formats other than ELF.
void RequireBytes(std::string_view bytes, uint64_t offset, uint64_t count);

template <typename T>
T ReadAt(std::string_view bytes, uint64_t offset) {
  RequireBytes(bytes, offset, sizeof(T));
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

}  // namespace muster::software_gpu
