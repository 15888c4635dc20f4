#include "cli/evaluate/eval_page.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <tuple>

#include "cli/text/units.h"
#include "cli/view/chart.h"
#include "common/base/text.h"
#include "common/base/version.h"
#include "common/plan/metrics.h"

namespace muster {
namespace {

constexpr size_t kMostWithCounts = 16;  // classes of a matrix with names and counts
constexpr size_t kMostInMatrix = 128;   // above, there is no matrix
constexpr size_t kMostOpenRows = 20;    // rows of classes and of confusions

// Shades are half transparent, so that they fit a light and a dark background.
constexpr const char* kHead =
    R"(<head><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<meta name="viewport" content="width=device-width, initial-scale=1"><style>
:root { --back: #fff; --text: #1d1d1f; --soft: #62626a; --line: #d9d9de; --panel: #f4f4f6 }
@media (prefers-color-scheme: dark) {
  :root { --back: #161618; --text: #ececf0; --soft: #a2a2ac; --line: #3a3a40; --panel: #222226 } }
body { margin: auto; padding: 24px; max-width: 1060px; background: var(--back); color: var(--text);
  font: 15px/1.45 system-ui, "DejaVu Sans", sans-serif; overflow-wrap: anywhere }
h1 { font-size: 24px; margin: 0 } h2 { font-size: 18px; margin: 36px 0 8px } p { margin: 4px 0 12px }
p, th, dt, small, figcaption, summary { color: var(--soft); font-size: 13px; font-weight: normal }
dl { display: flex; flex-wrap: wrap; gap: 12px } dd { margin: 0; font-size: 24px } small { display: block }
dl div, pre { background: var(--panel); border-radius: 8px; padding: 10px 16px } summary { cursor: pointer }
pre { white-space: pre-wrap } .wide { overflow-x: auto } .curves { width: 100%; border-radius: 8px }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
table:not(.m) tr { border-bottom: 1px solid var(--line) }
th, td { padding: 3px 14px 3px 0; text-align: left; white-space: nowrap } .n { text-align: right }
.t { max-width: 250px; white-space: normal; overflow-wrap: break-word }
.m td { background: rgba(213, 94, 0, var(--a, 0)); text-align: center }
.m td.d { background: rgba(0, 114, 178, var(--a, 0)) }
.counts td { min-width: 44px; padding: 6px; border: 1px solid var(--line) }
.counts thead th { vertical-align: bottom; text-align: center; padding: 3px }
.counts thead span { writing-mode: vertical-rl; transform: rotate(180deg); max-height: 150px; overflow: hidden }
.fine { border: 1px solid var(--line) } .fine td { min-width: 7px; height: 7px; padding: 0; line-height: 0 }
.fine th { font-size: 11px; line-height: 1; padding: 2px 4px; vertical-align: top; border: 1px solid var(--line) }
.shots { display: grid; grid-template-columns: repeat(auto-fill, minmax(140px, 1fr)); gap: 16px } figure { margin: 0 }
img { background: var(--panel) } b { color: var(--text) }
.shots img { width: 112px; height: 112px; object-fit: contain; image-rendering: pixelated }
</style>
)";

std::string NameHtml(int64_t number, const EvaluationReport& report) {
  return Markup(ClassName(static_cast<size_t>(number), report.class_names));
}

// "-" if `of` is 0.
std::string ShareHtml(int64_t part, int64_t of) {
  return of == 0 ? "-" : FormatPercent(static_cast<double>(part) / static_cast<double>(of), 1);
}

std::string IntervalHtml(int64_t part, int64_t of) {
  if (of == 0) return "-";
  const Interval interval = WilsonInterval(part, of);
  return FormatPercent(interval.low, 1) + " to " + FormatPercent(interval.high, 1);
}

using HtmlCells = std::vector<std::string>;

// The first `names` columns are text, the others numbers.
std::string TableHtml(const HtmlCells& titles, size_t names, const std::vector<HtmlCells>& rows) {
  std::string html = "<div class=\"wide\"><table>\n<tr>";
  for (size_t c = 0; c < titles.size(); ++c)
    html += fmt::format("<th{}>{}</th>", c < names ? "" : " class=\"n\"", titles[c]);
  for (const HtmlCells& cells : rows) {
    html += "</tr>\n<tr>";
    for (size_t c = 0; c < cells.size(); ++c)
      html += fmt::format("<td class=\"{}\">{}</td>", c < names ? "t" : "n", cells[c]);
  }
  return html + "</tr>\n</table></div>\n";
}

std::string ScoresHtml(const EvaluationReport& report) {
  std::string html = "<dl>";
  const auto add = [&](const char* name, const std::string& value, const std::string& more) {
    html += fmt::format("<div><dt>{}</dt><dd>{}<small>{}</small></dd></div>\n", name, value, more);
  };
  if (const auto accuracy = report.scores.accuracy) {
    const int64_t right = std::llround(*accuracy * static_cast<double>(report.images));
    add("accuracy", FormatPercent(*accuracy, 2),
        "95 % interval: " + IntervalHtml(right, report.images));
  }
  for (const auto& [name, sum] : report.scores.metrics) {
    const double mean = sum.Mean();
    const bool is_share = MetricNamed(name)->is_share;
    add(name.c_str(), is_share ? FormatPercent(mean, 2) : fmt::format("{:.4g}", mean),
        is_share ? "of the samples" : "mean");
  }
  add("loss", fmt::format("{:.4g}", report.scores.loss.value_or(NAN)), "mean");
  return html + "</dl>\n";
}

std::string ClassesHtml(const ConfusionCounts& counts, const EvaluationReport& report) {
  std::vector<std::pair<double, HtmlCells>> rows;
  for (size_t c = 0; c < counts.size(); ++c) {
    const int64_t right = counts[c][c];
    const int64_t samples = std::reduce(counts[c].begin(), counts[c].end());
    int64_t taken = 0;
    for (const std::vector<int64_t>& row : counts) taken += row[c];
    rows.emplace_back(samples == 0 ? 2 : static_cast<double>(right) / static_cast<double>(samples),
                      HtmlCells{NameHtml(static_cast<int64_t>(c), report), FormatCount(samples),
                                FormatCount(right), ShareHtml(right, samples),
                                IntervalHtml(right, samples), ShareHtml(right, taken)});
  }
  const bool many = rows.size() > kMostOpenRows;
  if (many) std::ranges::stable_sort(rows, {}, &std::pair<double, HtmlCells>::first);
  std::vector<HtmlCells> open, others;
  for (auto& [recall, cells] : rows)
    (open.size() < kMostOpenRows ? open : others).push_back(std::move(cells));
  const HtmlCells titles{"class", "samples", "right", "recall", "95 % interval", "precision"};
  std::string html = "<h2>Classes</h2>\n" + TableHtml(titles, 1, open);
  if (!many) return html;
  return html + fmt::format(
                    "<details><summary>These have the lowest recall; the other {}</summary>"
                    "\n{}</details>\n",
                    others.size(), TableHtml(titles, 1, others));
}

std::string CellHtml(const ConfusionCounts& counts, size_t label, size_t predicted, bool large,
                     const EvaluationReport& report) {
  const int64_t count = counts[label][predicted];
  const int64_t samples = std::reduce(counts[label].begin(), counts[label].end());
  if (count == 0) return large ? "<td>0</td>" : "<td></td>";
  const double share = static_cast<double>(count) / static_cast<double>(samples);
  // Text stays readable on the shades of large cells. Small cells show small shares, too.
  const double shade = large ? 0.05 + 0.6 * share : 0.15 + 0.85 * std::sqrt(share);
  return fmt::format("<td{} style=\"--a:{:.2f}\" title=\"{} taken for {}: {} ({})\">{}</td>",
                     label == predicted ? " class=\"d\"" : "", shade,
                     NameHtml(static_cast<int64_t>(label), report),
                     NameHtml(static_cast<int64_t>(predicted), report), FormatCount(count),
                     ShareHtml(count, samples), large ? FormatCount(count) : "");
}

std::string MatrixHtml(const ConfusionCounts& counts, const EvaluationReport& report) {
  const size_t classes = counts.size();
  if (classes > kMostInMatrix) return "<p>--confusion-csv writes the whole matrix to a file.</p>\n";
  const bool large = classes <= kMostWithCounts;
  const size_t step = large ? 1 : 10;  // classes per heading
  const auto heading = [&](size_t c, const char* span) {
    const std::string text = large ? NameHtml(static_cast<int64_t>(c), report) : std::to_string(c);
    const bool upright = text.size() <= 3;
    return fmt::format("<th class=\"t\" {0}=\"{1}\" title=\"{2}\">{3}{2}{4}</th>", span,
                       std::min(step, classes - c), text, upright ? "" : "<span>",
                       upright ? "" : "</span>");
  };
  std::string html = fmt::format(
      "<h2>Confusion matrix</h2>\n<p>Rows: labels. Columns: predictions. Shades: shares of a row; "
      "blue is right, orange is wrong.{}</p>\n<div class=\"wide\"><table class=\"m {}\">"
      "<thead><tr><th></th>",
      large ? "" : " Hold the pointer over a cell for its names and count.",
      large ? "counts" : "fine");
  for (size_t c = 0; c < classes; c += step) html += heading(c, "colspan");
  html += "</tr></thead>\n";
  for (size_t label = 0; label < classes; ++label) {
    html += "<tr>";
    if (label % step == 0) html += heading(label, "rowspan");
    for (size_t c = 0; c < classes; ++c) html += CellHtml(counts, label, c, large, report);
    html += "</tr>\n";
  }
  return html + "</table></div>\n";
}

std::string ConfusionsHtml(const ConfusionCounts& counts, const EvaluationReport& report) {
  std::vector<std::tuple<int64_t, size_t, size_t>> confusions;
  for (size_t label = 0; label < counts.size(); ++label) {
    for (size_t c = 0; c < counts.size(); ++c) {
      if (c != label && counts[label][c] > 0) confusions.emplace_back(-counts[label][c], label, c);
    }
  }
  std::ranges::sort(confusions);
  confusions.resize(std::min(confusions.size(), kMostOpenRows));
  std::vector<HtmlCells> rows;
  rows.reserve(confusions.size());
  for (const auto& [negative, label, c] : confusions) {
    rows.push_back({NameHtml(static_cast<int64_t>(label), report),
                    NameHtml(static_cast<int64_t>(c), report), FormatCount(-negative),
                    ShareHtml(-negative, std::reduce(counts[label].begin(), counts[label].end()))});
  }
  return "<h2>Most frequent confusions</h2>\n" +
         TableHtml({"label", "taken for", "times", "of the label's samples"}, 2, rows);
}

std::string MistakesHtml(const EvaluationPage& page) {
  if (page.mistakes.empty()) return "";
  std::string figures;
  std::vector<HtmlCells> rows;
  for (const SureMistake& one : page.mistakes) {
    const Thumbnail picture = page.pictures.empty() ? Thumbnail() : page.pictures.at(rows.size());
    const HtmlCells& cells = rows.emplace_back(HtmlCells{
        NameHtml(one.label, page.report), NameHtml(one.predicted, page.report),
        FormatPercent(one.probability, 1),
        picture.file.empty() ? fmt::format("sample {}", one.sample) : Markup(picture.file)});
    if (page.pictures.empty()) continue;
    figures += fmt::format(
        "<figure><img alt=\"{3}\" src=\"{4}\"><figcaption><b>{0}</b> taken for <b>{1}</b>, {2}"
        "<br>{3}</figcaption></figure>\n",
        cells[0], cells[1], cells[2], cells[3], picture.url);
  }
  return "<h2>Most confident mistakes</h2>\n" +
         (figures.empty() ? TableHtml({"label", "taken for", "probability", ""}, 2, rows)
                          : "<div class=\"shots\">\n" + figures + "</div>\n");
}

}  // namespace

Interval WilsonInterval(int64_t part, int64_t of) {
  constexpr double kSquare = 1.959963984540054 * 1.959963984540054;  // of the normal quantile
  const auto n = static_cast<double>(of);
  const double share = static_cast<double>(part) / n, scale = 1 / (1 + kSquare / n);
  const double middle = scale * (share + kSquare / (2 * n));
  const double half =
      scale * std::sqrt(kSquare * (share * (1 - share) / n + kSquare / (4 * n * n)));
  return {std::max(0.0, middle - half), std::min(1.0, middle + half)};
}

std::string EvaluationHtml(const EvaluationPage& page) {
  const EvaluationReport& report = page.report;
  std::string html = fmt::format(
      "{0}{1}<title>{2}</title></head><body>\n<h1>{2}</h1>\n<p>{3}; {4} in {5}</p>\n{6}",
      kHtmlBeginning, kHead, Markup(report.model), Markup(report.described),
      Plural(report.images, report.set + " " + report.sample), Markup(report.data),
      ScoresHtml(report));
  if (report.confusion) {
    html += ClassesHtml(*report.confusion, report) + MatrixHtml(*report.confusion, report) +
            ConfusionsHtml(*report.confusion, report);
  }
  html += MistakesHtml(page);
  if (!page.curves.empty()) {
    html += fmt::format(
        "<h2>Curves of the run</h2>\n<img class=\"curves\" alt=\"curves\" src=\"{}\">\n",
        DataUrl("image/svg+xml", ValidUtf8(page.curves)));
  }
  return html + fmt::format(
                    "<h2>This page again</h2>\n<pre>{}</pre>\n<p>weights hash {}, muster "
                    "{}</p>\n</body></html>\n",
                    Markup(page.command), Markup(page.weights_hash), kVersion);
}

}  // namespace muster
