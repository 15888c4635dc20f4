// The programs and configs of this build or installation.
#pragma once

#include <filesystem>
#include <string>

namespace muster {

// The folder of this program, and another program in it.
std::filesystem::path ProgramFolder();
std::string Sibling(const std::string& name);

// The file that is meant by `name`: `name` itself, unless no such file is here and one of that name
// came with the program, so that the README's commands work in any folder. Beside `program_folder`
// (PREFIX/bin), a package has configs at PREFIX/name, `cmake --install` at
// PREFIX/share/muster/name. Never fails: a missing file is its reader's error.
std::string FindConfig(const std::string& name, const std::filesystem::path& program_folder);

}  // namespace muster
