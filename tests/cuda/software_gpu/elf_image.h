// The parts of an ELF file: of a program, a library, or a card's code within one.
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
  uint32_t link = 0;       // another section: a symbol table's names
  uint64_t size = 0;       // once it is loaded
  std::string_view bytes;  // in the file; empty where there are none
};

struct ElfSymbol {
  std::string_view name;
  unsigned char info = 0;
  uint64_t value = 0;
};

// `file` must outlive what is returned. Throws Error where it is no ELF file of 64 bits.
std::vector<ElfSection> ReadElfSections(std::string_view file);
// The symbols in the order of the symbol table; empty without one. The names point into the file.
std::vector<ElfSymbol> ReadElfSymbols(const std::vector<ElfSection>& sections);

// A T at this place. Throws Error behind the end.
template <typename T>
T ReadAt(std::string_view bytes, uint64_t offset);

// A file, of which only what is looked at is read.
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

// A template's body, for those who read other things than ELF.
void RequireBytes(std::string_view bytes, uint64_t offset, uint64_t count);

template <typename T>
T ReadAt(std::string_view bytes, uint64_t offset) {
  RequireBytes(bytes, offset, sizeof(T));
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

}  // namespace muster::software_gpu
