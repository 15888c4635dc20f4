// Kinds of options that several commands have, and what values may be.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands/arguments.h"

namespace muster {

// With messages in plain words.
CLI::Validator WholeNumber(uint64_t least, uint64_t most);
CLI::Validator OneOf(const std::vector<std::string>& names);
CLI::Validator SomeText();

// CONFIG and --set; returns the former.
CLI::Option* AddConfigArguments(CLI::App& command, Arguments& arguments);
CLI::Option* AddSettings(CLI::App& command, Arguments& arguments, const char* text);
void AddOption(CLI::App& command, const char* name, std::string& value, const char* type,
               const char* text);
CLI::Option* AddSkipMismatched(CLI::App& command, Arguments& arguments);
// An option with a number, or alone for the usual one.
void AddOptionalNumber(CLI::App& command, const char* name, std::optional<double>& value,
                       double usual, double least, double most, const char* type, const char* text);
void AddWait(CLI::App& command, Arguments& arguments);

}  // namespace muster
