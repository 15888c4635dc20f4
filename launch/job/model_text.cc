#include "launch/job/model_text.h"

#include <fmt/core.h>

#include <filesystem>

#include "launch/text/units.h"

namespace muster {

std::vector<std::string> ModelTexts(const events::Summary& summary, const RunDir& dir) {
  std::vector<std::string> texts;
  for (const events::Summary::Model& model : summary.models()) {
    const std::filesystem::path file = model.file();
    std::string text = file.is_absolute() ? file.string() : dir.shown() + "/" + file.string();
    text += ": ";
    const bool best = file.filename().string().starts_with("best");
    text += fmt::format("{}{} step {}", model.average() ? "the moving average " : "",
                        best ? "of the best evaluation, at" : "after", FormatCount(model.step()));
    if (best && model.has_test_accuracy()) {
      text += fmt::format(" ({})", FormatPercent(model.test_accuracy(), 2));
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

}  // namespace muster
