// The command line of a program, or of one of its commands. Wraps CLI11, because its header adds
// several seconds of compile time to each file that includes it.
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
  // Each function adds a property to the option and returns it.
  class Option {
   public:
    Option Required();
    // Excludes `other`. Exactly one of the two is required.
    Option RequiredUnless(const Option& other);
    Option ShowDefault();
    Option InRange(int64_t least, int64_t most);
    Option OneOf(std::initializer_list<const char*> values);
    // Accepts 64KiB (2^10), 400MB (10^6) or a plain number.
    Option AsBytes();
    // For a vector: accepts 1,2,3.
    Option SeparatedBy(char separator);
    // For a vector: accepts one value each time the option is given.
    Option Repeatable();

   private:
    friend class ProgramOptions;
    Option(ProgramOptions* owner, CLI::Option* option) : owner_(owner), option_(option) {}

    ProgramOptions* owner_;
    CLI::Option* option_;
  };

  // --help wraps all texts to 80 columns.
  explicit ProgramOptions(const std::string& description);
  ~ProgramOptions();
  ProgramOptions(const ProgramOptions&) = delete;

  // `name` is "--option", or "argument" for a positional argument. T is string, int, uint32_t,
  // int64_t, uint64_t, double, or a vector of string, int or uint64_t.
  template <typename T>
  Option Add(const std::string& name, T& value, const std::string& text = "");
  Option AddFlag(const std::string& name, bool& value, const std::string& text);

  // Fills the values. Returns an exit code if the program must exit, either after --help or after
  // an error that has already been printed.
  std::optional<int> Parse(int argc, char** argv);

 private:
  const std::unique_ptr<CLI::App> app_;
  std::vector<std::pair<CLI::Option*, CLI::Option*>> alternatives_;  // either is required
};

}  // namespace muster
