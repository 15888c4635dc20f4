#include "tests/cuda/software_gpu/elf_image.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/error.h"

namespace muster::software_gpu {
namespace {

std::string_view NameAt(std::string_view names, uint64_t offset) {
  RequireBytes(names, offset, 1);
  const std::string_view rest = names.substr(offset);
  return rest.substr(0, rest.find('\0'));
}

}  // namespace

void RequireBytes(std::string_view bytes, uint64_t offset, uint64_t count) {
  if (offset <= bytes.size() && count <= bytes.size() - offset) return;
  throw Error(ExitCode::kFailure, "truncated file: expected {} bytes at {}, got {} in total", count,
              offset, bytes.size());
}

MappedFile::MappedFile(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status = {};
  if (file < 0 || fstat(file, &status) != 0 || status.st_size == 0) {
    if (file >= 0) close(file);
    throw Error(ExitCode::kFailure, "cannot read {}", path);
  }
  const auto bytes = static_cast<size_t>(status.st_size);
  void* const at = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (at == MAP_FAILED) throw Error(ExitCode::kFailure, "cannot read {}", path);
  bytes_ = {static_cast<const char*>(at), bytes};
}

MappedFile::~MappedFile() { munmap(const_cast<char*>(bytes_.data()), bytes_.size()); }

std::vector<ElfSection> ReadElfSections(std::string_view file) {
  const auto header = ReadAt<Elf64_Ehdr>(file, 0);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_shentsize != sizeof(Elf64_Shdr)) {
    throw Error(ExitCode::kFailure, "expected an ELF file of 64 bits");
  }
  const auto part = [&](size_t index) {
    return ReadAt<Elf64_Shdr>(file, header.e_shoff + index * sizeof(Elf64_Shdr));
  };
  const auto bytes = [&](const Elf64_Shdr& section) -> std::string_view {
    if (section.sh_type == SHT_NOBITS || section.sh_type == SHT_NULL) return {};
    RequireBytes(file, section.sh_offset, section.sh_size);
    return file.substr(section.sh_offset, section.sh_size);
  };
  const std::string_view names = bytes(part(header.e_shstrndx));
  std::vector<ElfSection> sections;
  for (size_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr section = part(i);
    sections.push_back({.name = std::string(NameAt(names, section.sh_name)),
                        .type = section.sh_type,
                        .link = section.sh_link,
                        .size = section.sh_size,
                        .bytes = bytes(section)});
  }
  return sections;
}

std::vector<ElfSymbol> ReadElfSymbols(const std::vector<ElfSection>& sections) {
  std::vector<ElfSymbol> symbols;
  for (const ElfSection& section : sections) {
    if (section.type != SHT_SYMTAB) continue;
    const std::string_view names = sections.at(section.link).bytes;
    for (uint64_t at = 0; at < section.bytes.size(); at += sizeof(Elf64_Sym)) {
      const auto symbol = ReadAt<Elf64_Sym>(section.bytes, at);
      symbols.push_back({NameAt(names, symbol.st_name), symbol.st_info, symbol.st_value});
    }
  }
  return symbols;
}

}  // namespace muster::software_gpu
