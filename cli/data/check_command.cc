#include "cli/data/check_command.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>

#include "cli/data/training_command.h"
#include "cli/text/console.h"
#include "cli/text/text_table.h"
#include "cli/text/units.h"
#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/text.h"

namespace muster {
namespace {

using OrderedJson = nlohmann::ordered_json;

int64_t ImagesOf(const PhotoReport::Set& set) {
  return std::accumulate(set.images.begin(), set.images.end(), int64_t{0});
}

std::string SizeText(const ImageSize& size) {
  return fmt::format("{} x {}", size.width, size.height);
}

OrderedJson SizeJson(const ImageSize& size) {
  return {{"width", size.width}, {"height", size.height}};
}

struct GradeWords {
  const char* text;
  ExitCode code;
};

const GradeWords& WordsOf(PhotoGrade grade) {
  static constexpr GradeWords kWords[] = {
      {"note", ExitCode::kOk}, {"SUSPICIOUS", ExitCode::kFailure}, {"WRONG", ExitCode::kData}};
  return kWords[static_cast<size_t>(grade)];
}

std::string Verdict(const PhotoReport& report) {
  const PhotoGrade grade = report.grade();
  if (grade == PhotoGrade::kWrong) return "Training would stop.";
  return fmt::format("Training would work{}{}.",
                     report.needs_fraction ? " with data.validation_fraction" : "",
                     grade == PhotoGrade::kSuspicious ? ", but its results would mislead" : "");
}

std::vector<std::string> ClassTable(const PhotoReport& report) {
  std::vector<TextTable::Column> columns{{"class"}};
  for (const PhotoReport::Set& set : report.sets) {
    columns.push_back({set.name.empty() ? "images" : set.name, true});
  }
  TextTable table(std::move(columns));
  const auto add = [&](const std::string& name, const auto& images) {
    std::vector<std::string> cells{name};
    for (const PhotoReport::Set& set : report.sets) cells.push_back(FormatCount(images(set)));
    table.AddRow(std::move(cells));
  };
  for (size_t c = 0; c < report.classes.size(); ++c) {
    add(report.classes[c], [c](const PhotoReport::Set& set) { return set.images[c]; });
  }
  table.AddRule();
  add("all", ImagesOf);
  return table.Lines();
}

// The issues of one kind.
std::span<const PhotoIssue> IssuesOf(const PhotoReport& report, size_t kind) {
  return {std::ranges::lower_bound(report.issues, kind, {}, &PhotoIssue::kind),
          std::ranges::upper_bound(report.issues, kind, {}, &PhotoIssue::kind)};
}

void AddIssueLines(size_t kind, std::span<const PhotoIssue> issues,
                   std::vector<std::string>& lines) {
  static constexpr size_t kMostShown = 10;
  const auto shown = [](std::vector<std::string> paths) {
    const size_t all = paths.size();
    paths.resize(std::min(all, kMostShown));
    const std::string text = Join(paths, " = ");
    return all == paths.size() ? text : fmt::format("{} = {} more", text, all - paths.size());
  };
  if (issues.empty()) return;
  lines.push_back(fmt::format("{:<11} {}: {}", WordsOf(kPhotoIssues[kind].grade).text,
                              kPhotoIssues[kind].heading, FormatCount(std::ssize(issues))));
  for (const PhotoIssue& issue : issues.first(std::min(issues.size(), kMostShown))) {
    const bool both = !issue.paths.empty() && !issue.text.empty();
    lines.push_back(fmt::format("  {}{}{}", shown(issue.paths), both ? ": " : "", issue.text));
  }
  if (issues.size() > kMostShown) {
    lines.push_back(fmt::format("  and {} more",
                                FormatCount(static_cast<int64_t>(issues.size() - kMostShown))));
  }
}

}  // namespace

std::vector<std::string> PhotoReportLines(const PhotoReport& report) {
  int64_t images = 0, bytes = 0;
  for (const PhotoReport::Set& set : report.sets) {
    images += ImagesOf(set);
    bytes += set.bytes;
  }
  std::vector<std::string> lines{fmt::format(
      "{}: classes: {}, images: {}, {}", report.dir, FormatCount(std::ssize(report.classes)),
      FormatCount(images), FormatBytes(static_cast<double>(bytes)))};
  for (std::string& line : ClassTable(report)) lines.push_back(std::move(line));
  if (report.largest.height > 0) {
    lines.push_back(fmt::format("  width x height, by area: smallest {}, median {}, largest {}",
                                SizeText(report.smallest), SizeText(report.median),
                                SizeText(report.largest)));
  }
  if (report.warnings > 0) {
    lines.push_back("  warnings of the decoder: " + FormatCount(report.warnings));
  }
  for (size_t kind = 0; kind < kPhotoIssues.size(); ++kind) {
    AddIssueLines(kind, IssuesOf(report, kind), lines);
  }
  lines.push_back(Verdict(report));
  return lines;
}

std::string PhotoReportJson(const PhotoReport& report) {
  OrderedJson json{
      {"dir", report.dir}, {"verdict", Verdict(report)}, {"sets", OrderedJson::array()}};
  for (const PhotoReport::Set& set : report.sets) {
    OrderedJson classes = OrderedJson::object();
    for (size_t c = 0; c < report.classes.size(); ++c) classes[report.classes[c]] = set.images[c];
    json["sets"].push_back({{"name", set.name},
                            {"images", ImagesOf(set)},
                            {"bytes", set.bytes},
                            {"classes", std::move(classes)}});
  }
  json["smallest"] = SizeJson(report.smallest);
  json["median"] = SizeJson(report.median);
  json["largest"] = SizeJson(report.largest);
  json["decoder_warnings"] = report.warnings;
  for (size_t kind = 0; kind < kPhotoIssues.size(); ++kind) {
    OrderedJson& issues = json["issues"][kPhotoIssues[kind].name] = OrderedJson::array();
    for (const PhotoIssue& issue : IssuesOf(report, kind)) {
      issues.push_back({{"paths", issue.paths}, {"text", issue.text}});
    }
  }
  return JsonText(json, 2);
}

constexpr std::string_view kListHeader =
    "# Images that training leaves out (data.image_folder.exclude), by muster data check.";

std::string ExclusionsText(const PhotoReport& report) {
  std::set<std::string> paths = report.left_out_before;
  for (const PhotoIssue& issue : report.issues) {
    const std::string_view kind = kPhotoIssues[issue.kind].name;
    if (kind == "damaged") paths.insert(issue.paths[0]);
    if (kind.starts_with("duplicates")) paths.insert(issue.paths.begin() + 1, issue.paths.end());
  }
  std::string text = std::string(kListHeader) + "\n";
  for (const std::string& path : paths) {
    if (path.find_first_of("\r\n") != std::string::npos) {
      throw Error(ExitCode::kData,
                  "{}: a list cannot contain a name with a line break; rename or remove the file",
                  path);
    }
    text += (path.starts_with('#') ? "./" : "") + path + "\n";
  }
  return text;
}

int RunCheck(const CheckArguments& arguments) {
  std::optional<AtomicFile> list;  // created first, so that no work is lost if that fails
  if (!arguments.write_exclusions.empty()) {
    RequireReplaceable("--write-exclusions", arguments.write_exclusions, kListHeader);
    list.emplace(arguments.write_exclusions);
  }
  PhotoReport report;
  {
    Console console(STDERR_FILENO);
    int64_t tenths = 0;
    report = CheckPhotos(arguments.dir, arguments.exclude, [&](int64_t done, int64_t images) {
      const std::string text =
          fmt::format("checked {} of {} images", FormatCount(done), FormatCount(images));
      console.SetLive("  " + text);
      if (console.is_terminal() || 10 * done / images == tenths) return;
      tenths = 10 * done / images;
      console.Print(text);
    });
  }
  if (arguments.json) {
    PrintResultAsIs(PhotoReportJson(report));
  } else {
    PrintResult(PhotoReportLines(report));
  }
  if (list) {
    const std::string text = ExclusionsText(report);
    list->Write(std::as_bytes(std::span(text)));
    list->Commit();
    const std::string& path = arguments.write_exclusions;
    const auto images = std::ranges::count(text, '\n') - 1;  // without the header
    const bool mislabelled = std::ranges::any_of(report.issues, [](const PhotoIssue& issue) {
      return std::string_view(kPhotoIssues[issue.kind].name) == "duplicates_between_classes";
    });
    const std::string line = fmt::format(
        "Wrote {}, {}{}", path, Plural(images, "image"),
        mislabelled ? "; of copies in several classes it keeps one, so check which class is right"
                    : "");
    if (arguments.json) {  // standard output is for programs
      PrintError(line + "\n");
    } else {
      PrintResult(line);
    }
  }
  const bool works = std::ranges::all_of(report.issues, [&](const PhotoIssue& issue) {
    const PhotoIssueKind& kind = kPhotoIssues[issue.kind];
    return kind.grade != PhotoGrade::kWrong || (list && std::string_view(kind.name) == "damaged");
  });
  if (works && !arguments.json) {
    PrintResult(TrainingCommand(report, list ? arguments.write_exclusions : arguments.exclude));
  }
  return static_cast<int>(WordsOf(report.grade()).code);
}

}  // namespace muster
