#include "cli/commands/programs.h"

namespace muster {

std::filesystem::path ProgramFolder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

std::string Sibling(const std::string& name) { return ProgramFolder() / name; }

}  // namespace muster
