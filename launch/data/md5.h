// MD5 of a file: what publishers give beside their archives. Not for security.
#pragma once

#include <filesystem>
#include <string>

namespace muster {

// 32 lower-case hexadecimal digits. Throws Error(kFailure) where the file cannot be read.
std::string Md5OfFile(const std::filesystem::path& path);

}  // namespace muster
