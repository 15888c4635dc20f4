// Configs that came with the program.
#pragma once

#include <filesystem>
#include <string>

namespace muster {

// The file that is meant by `name`: `name` itself, but where no such file is here and one of that
// name came with the program, that one, so that the README's commands work in any folder. Beside
// `program_folder` (PREFIX/bin), a package has it at PREFIX/name, `cmake --install` at
// PREFIX/share/muster/name. Never fails: what is nowhere is left for its reader to say.
std::string FindConfig(const std::string& name, const std::filesystem::path& program_folder);

}  // namespace muster
