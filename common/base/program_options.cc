#include "common/base/program_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <type_traits>

#include "common/base/error.h"
#include "common/base/leading_zero.h"
#include "common/base/version.h"

namespace muster {
namespace {

// Wraps text for a terminal of 80 columns. CLI11 keeps line breaks and indents continuation lines.
std::string InLines(std::string text, size_t width) {
  for (size_t begin = 0; text.size() - begin > width;) {
    size_t end = std::min(text.find('\n', begin), text.size());
    if (end - begin > width) {
      const size_t space = text.rfind(' ', begin + width);
      const bool fits = space != std::string::npos && space > begin;
      end = std::min(fits ? space : text.find(' ', begin), end);
    }
    if (end == text.size()) break;
    text[end] = '\n';
    begin = end + 1;
  }
  return text;
}

constexpr size_t kColumns = 80, kNameColumns = 30;

}  // namespace

using Option = ProgramOptions::Option;

Option Option::Required() {
  option_->required();
  return *this;
}

Option Option::RequiredUnless(const Option& other) {
  option_->excludes(other.option_);
  owner_->alternatives_.emplace_back(option_, other.option_);
  return *this;
}

Option Option::ShowDefault() {
  option_->capture_default_str();
  return *this;
}

Option Option::InRange(int64_t least, int64_t most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Option Option::OneOf(std::initializer_list<const char*> values) {
  option_->check(CLI::IsMember(std::vector<std::string>(values.begin(), values.end())));
  return *this;
}

Option Option::AsBytes() {
  option_->transform(CLI::AsSizeValue(true));
  return *this;
}

Option Option::SeparatedBy(char separator) {
  option_->delimiter(separator);
  return *this;
}

Option Option::Repeatable() {
  option_->allow_extra_args(false);
  return *this;
}

ProgramOptions::ProgramOptions(const std::string& description)
    : app_(std::make_unique<CLI::App>(InLines(description, kColumns))) {
  app_->get_formatter()->column_width(kNameColumns);
  app_->set_version_flag("--version", std::string("muster ") + kVersion);
}

ProgramOptions::~ProgramOptions() = default;

template <typename T>
Option ProgramOptions::Add(const std::string& name, T& value, const std::string& text) {
  CLI::Option* const option = app_->add_option(name, value, InLines(text, kColumns - kNameColumns));
  constexpr bool kIsText =
      std::is_same_v<T, std::string> || std::is_same_v<T, std::vector<std::string>>;
  if constexpr (!kIsText) option->check(LeadingZeroTrouble, "");
  return {this, option};
}

template Option ProgramOptions::Add(const std::string&, std::string&, const std::string&);
template Option ProgramOptions::Add(const std::string&, int&, const std::string&);
template Option ProgramOptions::Add(const std::string&, uint32_t&, const std::string&);
template Option ProgramOptions::Add(const std::string&, int64_t&, const std::string&);
template Option ProgramOptions::Add(const std::string&, uint64_t&, const std::string&);
template Option ProgramOptions::Add(const std::string&, double&, const std::string&);
template Option ProgramOptions::Add(const std::string&, std::vector<std::string>&,
                                    const std::string&);
template Option ProgramOptions::Add(const std::string&, std::vector<int>&, const std::string&);
template Option ProgramOptions::Add(const std::string&, std::vector<uint64_t>&, const std::string&);

Option ProgramOptions::AddFlag(const std::string& name, bool& value, const std::string& text) {
  return {this, app_->add_flag(name, value, InLines(text, kColumns - kNameColumns))};
}

std::optional<int> ProgramOptions::Parse(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
    for (const auto& [option, other] : alternatives_) {
      if (option->empty() && other->empty()) throw CLI::RequiredError(option->get_name());
    }
  } catch (const CLI::ParseError& error) {
    return app_->exit(error) == 0 ? 0 : static_cast<int>(ExitCode::kUsage);
  }
  return std::nullopt;
}

}  // namespace muster
