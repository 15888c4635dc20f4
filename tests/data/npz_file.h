// Writes archives of NumPy arrays.
#pragma once

#include <fmt/core.h>
#include <minizip/zip.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/base/text.h"

namespace muster::testing {

// The bytes of a .npy file of version 1.0.
inline std::string NpyBytes(const std::string& descr, const std::vector<int64_t>& shape,
                            const std::string& elements, const std::string& fortran = "False") {
  std::string text = fmt::format("{{'descr': {}, 'fortran_order': {}, 'shape': ({}{}), }}", descr,
                                 fortran, Join(shape, ", "), shape.size() == 1 ? "," : "");
  text.resize((10 + text.size() + 1 + 63) / 64 * 64 - 11, ' ');
  text += '\n';
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(text.size() & 0xff);
  bytes += static_cast<char>(text.size() >> 8);
  return bytes + text + elements;
}

template <typename T>
std::string Npy(const std::vector<int64_t>& shape, const std::vector<T>& elements) {
  const char kind = std::is_floating_point_v<T> ? 'f' : std::is_signed_v<T> ? 'i' : 'u';
  return NpyBytes(fmt::format("'{}{}{}'", sizeof(T) == 1 ? '|' : '<', kind, sizeof(T)), shape,
                  {reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(T)});
}

// A name and the bytes of a .npy file.
using NpyMembers = std::vector<std::pair<std::string, std::string>>;

inline void WriteNpzFile(const std::filesystem::path& path, const NpyMembers& members,
                         bool compressed = false) {
  std::filesystem::create_directories(path.parent_path());
  const auto check = [&](bool holds) {
    if (!holds) throw std::runtime_error("cannot write " + path.string());
  };
  zipFile zip = zipOpen64(path.c_str(), APPEND_STATUS_CREATE);
  check(zip != nullptr);
  for (const auto& [name, bytes] : members) {
    check(zipOpenNewFileInZip64(zip, (name + ".npy").c_str(), nullptr, nullptr, 0, nullptr, 0,
                                nullptr, compressed ? 8 : 0, compressed ? 6 : 0, 1) == ZIP_OK);
    check(zipWriteInFileInZip(zip, bytes.data(), static_cast<unsigned>(bytes.size())) == ZIP_OK);
    check(zipCloseFileInZip(zip) == ZIP_OK);
  }
  check(zipClose(zip, nullptr) == ZIP_OK);
}

}  // namespace muster::testing
