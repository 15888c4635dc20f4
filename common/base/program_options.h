// The command line of a program without commands. A front of CLI11 for what our programs need,
// since its header takes several seconds to compile wherever it is used.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace muster {

class ProgramOptions {
 public:
  // Each call says more about the option.
  class Option {
   public:
    Option Required();
    // Refused together with `other`, and required without it.
    Option RequiredUnless(const Option& other);
    // Allowed together with `other`, and required without it.
    Option OptionalWith(const Option& other);
    Option ShowDefault();
    Option InRange(int64_t least, int64_t most);
    Option OneOf(std::initializer_list<const char*> values);
    // 64KiB (2^10), 400MB (10^6), or a plain number.
    Option AsBytes();
    // For a vector: 1,2,3.
    Option SeparatedBy(char separator);
    // For a vector: one value for each time that the option is given.
    Option Repeatable();

   private:
    friend class ProgramOptions;
    Option(ProgramOptions* owner, CLI::Option* option) : owner_(owner), option_(option) {}

    ProgramOptions* owner_;
    CLI::Option* option_;
  };

  // --help cuts texts, here and below, for a terminal of 80 columns.
  explicit ProgramOptions(const std::string& description);
  ~ProgramOptions();
  ProgramOptions(const ProgramOptions&) = delete;

  // `name`: "--option", or "argument" for one that is told by its place. T: string, int, uint32_t,
  // int64_t, uint64_t, double, or a vector of string, int or uint64_t.
  template <typename T>
  Option Add(const std::string& name, T& value, const std::string& text = "");
  Option AddFlag(const std::string& name, bool& value, const std::string& text);

  // Fills the values. If the program is to end, its exit code: after --help, or after an error,
  // which has been printed.
  std::optional<int> Parse(int argc, char** argv);

 private:
  const std::unique_ptr<CLI::App> app_;
  std::vector<std::pair<CLI::Option*, CLI::Option*>> alternatives_;  // either is required
};

}  // namespace muster
