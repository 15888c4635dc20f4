// The programs of this build or installation, which lie in one directory.
#pragma once

#include <filesystem>
#include <string>

namespace muster {

std::filesystem::path ProgramFolder();
std::string Sibling(const std::string& name);

}  // namespace muster
