// Mistakes in the text of a config: all are reported together, each with place, key and advice.
#include <sstream>

#include "common/config/nearest_name.h"
#include "common/config/text_format.h"
#include "tests/config/config_fixture.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

std::vector<std::string> Lines(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

struct Mistake {
  const char* text;  // line 2 of the config, or a setting
  const char* key;
  const char* advice;
};

class ConfigErrorTest : public ConfigTest {};

TEST_F(ConfigErrorTest, AMistakeHasAPlaceAKeyAndAdvice) {
  for (const Mistake& one : {
           Mistake{"cluster { worker: 3 }", "cluster.worker", "\"workers\""},
           {"clutser { workers: 3 }", "clutser", "\"cluster\""},
           {"gpus: 2", "gpus", "devices"},
           {"layer { name: \"a\" }", "layer", "model_file"},
           {"cluster { workers: \"two\" }", "cluster.workers", "1024 (processes), got \"two\""},
           {"cluster { workers: -1 }", "cluster.workers", "got -1"},
           {"cluster { workers: 0 }", "cluster.workers", "at least 1"},
           {"cluster { workers: 99999999999 }", "cluster.workers", "got 99999999999"},
           {"cluster { workers:\t2.5 min_workers: 1 }", "cluster.workers", "got 2.5"},
           {"cluster { transport: TPC workers: 2 }", "cluster.transport", "\"TCP\""},
           {"cluster { transport: 4 }", "cluster.transport", "unknown value 4"},
           {"cluster: 3", "cluster", "got 3"},
           {"optimizer { type: MOMENTUM momentum: nan }", "optimizer.momentum", "nan"},
           {"optimizer { type: MOMENTUM momentum: x }", "optimizer.momentum",
            "less than 1 (factor)"},
           {"deadlines { start_s: inf }", "deadlines.start_s", "inf"},
           {"evaluation { skip_final: 2 }", "evaluation.skip_final", "true or false"},
           {"evaluation { batch: 1 batch: 2 }", "evaluation.batch", "/c.txtpb:2: "},
           {"checkpoint { every_steps: 1 every_epochs: 2 }", "checkpoint.every_epochs",
            "every_steps"},
           {"worker { devices: auto }", "worker.devices", "in quotes"},
           {"worker { devices: \u201cauto\u201d }", "worker.devices", "plain quotes"},
           {"learning_rate { base: 0,05 }", "learning_rate.base", "a point, not a comma"},
           {"worker { devices: 08 }", "worker.devices", "in quotes, got 08"},
           {"cluster { workers: 010 }", "cluster.workers", "got 010: leave out the leading zero"},
           {"deadlines { start_s: 09 }", "deadlines.start_s", "got 09: leave out the leading zero"},
           {"deadlines { start_s: -00.5 }", "deadlines.start_s",
            "got -00.5: leave out the leading"},
           {"evaluation { skip_final: 01 }", "evaluation.skip_final", "true or false, got 01"},
       }) {
    EXPECT_THAT(ErrorOf(Config(one.text)),
                AllOf(StartsWith(dir_ + "/c.txtpb:2: " + one.key + ": "), HasSubstr(one.advice)))
        << one.text;
  }
}

TEST_F(ConfigErrorTest, AMistakeInASettingNamesIt) {
  const std::string path = Config("");
  for (const Mistake& one : {
           Mistake{"run.epocs=3", "run.epocs", "\"epochs\""},
           {"rum.epochs=3", "rum", "\"run\""},
           {"run.epochs=x", "run.epochs", "(passes over the training set), got x"},
           {"run.epochs=0", "run.epochs", "at least 1"},
           {"optimizer.lr=0.1", "optimizer.lr", "learning_rate { base: "},
           {"lr=0.1", "lr", "learning_rate { base: "},
           {"learning_rate=0.1", "learning_rate", "{ base: 0.1 }"},
           {"batch_size=8", "batch_size", "global_batch"},
           {"run.batch_size=8", "run.batch_size", "global_batch"},
           {"gpus=2", "gpus", "--devices"},
           {"epochs=3", "epochs", "run { epochs"},
           {"optimizer.type=4", "optimizer.type", "unknown value 4"},
           {"optimizer={ type: 4 }", "optimizer.type", "unknown value 4"},
           {"run.seed=18446744073709551616", "run.seed", "at most 18446744073709551615"},
           {"model.layer[fc].dense.units=", "model.layer[0].dense.units", "got nothing"},
           {"learning_rate.base=nan", "learning_rate.base", "nan"},
           {"optimizer.type=FOO", "optimizer.type", "ADAMW"},
           {"optimizer={ type: ADAN }", "optimizer.type", "\"ADAM\""},
           {"run=3", "run", "got 3"},
           {"run.epochs=010", "run.epochs", "got 010: leave out the leading zero"},
           {"run.seed=08", "run.seed", "got 08: leave out the leading zero"},
           {"learning_rate.base=-01.5", "learning_rate.base", "leave out the leading zero"},
           {"data={ preprocess { mean: [0.5, 08, 0] } }", "data.preprocess.mean",
            "got 08: leave out the leading"},
           {"data={ preprocess { mean: [0.5, 1,] } }", "data.preprocess.mean", "got nothing"},
       }) {
    EXPECT_THAT(ErrorOf(path, {one.text}),
                AllOf(StartsWith(std::string("--set ") + one.text + ": " + one.key + ": "),
                      HasSubstr(one.advice)));
  }
  for (const auto& [setting, what] : {std::pair{"run.epochs=3 seed: 4", "got 3 seed: 4"},
                                      {"optimizer={ type: SGD } run { seed: 7 }", "one value"},
                                      {"run.seed.x=3", "has no fields"},
                                      {"model.layer.name=3", "list"},
                                      {"model.layer[nope].name=3", "nope"},
                                      {"model.layer[99999999999].name=3", "99999999999"},
                                      {"model.layer[00].name=3", "leave out the leading zero"}}) {
    EXPECT_THAT(ErrorOf(path, {setting}), HasSubstr(what));
  }
  EXPECT_THROW(ParseSetting("run.epochs"), Error);
  EXPECT_THROW(ParseSetting("=3"), Error);
}

TEST_F(ConfigErrorTest, AMistakeIsOneLineWhateverItsValueHolds) {
  for (const char* setting :
       {"run.seed=\x1b\n  y", "optimizer.type=\n  y", "a\n  b=3", "model.layer[\n  x].name=y"}) {
    EXPECT_THAT(ErrorOf(Config(""), {setting}),
                AllOf(Not(HasSubstr("\n")), Not(HasSubstr("\x1b")), HasSubstr("\\n  ")));
  }
}

TEST_F(ConfigErrorTest, NamesOfEnumsInAnyCase) {
  const config::Config config = LoadConfig(
      Config("optimizer { # type: Sgd\n\ttype:\t# Adam\n\tAdam } cluster { transport: tcp }"),
      {ParseSetting("worker.precision=Bf16"), ParseSetting("server={ instruction_set: Avx2 }")});
  EXPECT_EQ(config.optimizer().type(), config::Optimizer::ADAM);
  EXPECT_EQ(config.cluster().transport(), config::Cluster::TCP);
  EXPECT_EQ(config.worker().precision(), config::Worker::BF16);
  EXPECT_EQ(config.server().instruction_set(), config::Server::AVX2);
}

// PyTorch's padding=1. The parser would accept it, because 1 is the number of VALID.
TEST_F(ConfigErrorTest, PaddingIsNoNumber) {
  Write("model.txtpb",
        "layer { name: \"c\" conv2d { filters: 4 kernel: 3 padding: 1 } }\n" + std::string(kModel));
  EXPECT_THAT(ErrorOf(Config("")),
              AllOf(StartsWith(dir_ + "/model.txtpb:1: model.layer.conv2d.padding: "),
                    HasSubstr("padding: EXPLICIT pad: 1")));
  Write("model.txtpb",
        "layer { name: \"c\" conv2d { filters: 4 kernel: 3 } }\n" + std::string(kModel));
  EXPECT_THAT(ErrorOf(Config(""), {"model.layer[c].conv2d.padding=2"}),
              HasSubstr("padding: EXPLICIT pad: 2"));
}

TEST_F(ConfigErrorTest, MistakesOfTheModelNameItsFileLineAndLayer) {
  const auto error = [&](const std::string& model) {
    Write("model.txtpb", model);
    return ErrorOf(Config(""));
  };
  EXPECT_THAT(error("layer { name: \"fc\" dense { weights { initializer { type: FOO } } } }"),
              AllOf(HasSubstr("model.txtpb:1: "), HasSubstr("TRUNCATED_NORMAL")));
  EXPECT_THAT(error("layer { name: \"c\" conv2d { filters: 4 kernel: [3, x] } }"),
              HasSubstr("model.txtpb:1: model.layer.conv2d.kernel: "));
  EXPECT_THAT(error("layer: [{ name: \"a\" dense { units: 1 } }, { nme: \"b\" }]"),
              HasSubstr("model.txtpb:1: model.layer.nme: "));
  EXPECT_THAT(error("layer: [{ name: \"a\" dense { units: 1 } },\n5]"),
              HasSubstr("model.txtpb:2: model.layer: expected { KEY"));
  EXPECT_THAT(
      error("layer { name: \"fc\"\n dense { units: 10 } }\nlayer { name: \"loss\" softmax {} }\n"),
      AllOf(HasSubstr("model.txtpb:3"), HasSubstr("softmax_cross_entropy")));
  EXPECT_THAT(
      error("layer { name: \"c\" conv2d { filters: 4 kernel: 99 } }\n" + std::string(kModel)),
      AllOf(HasSubstr("model.txtpb:1"), HasSubstr("\"c\" (conv2d)")));
  EXPECT_THAT(error("layer { name: \"fc\" dense { units: 9 } }\nlayer { name: \"loss\" "
                    "softmax_cross_entropy {} }"),
              AllOf(HasSubstr("model.txtpb:2: "), HasSubstr("10 logits")));
  EXPECT_THAT(error("layer { name: \"fc\" dense { units: 9 } }\n" + std::string(kModel)),
              AllOf(HasSubstr("model.txtpb:2: "), HasSubstr("\"fc\" (dense)")));
  EXPECT_THAT(error(std::string("name: \"caf\xe9\"\n") + kModel),
              AllOf(HasSubstr("model.txtpb:1: model.name: "), HasSubstr("0xe9")));
  std::filesystem::remove(dir_ + "/model.txtpb");
  EXPECT_THAT(ErrorOf(Config("")), AllOf(HasSubstr("c.txtpb:4"), HasSubstr("model.txtpb")));
}

TEST_F(ConfigErrorTest, TextIsUtf8WithoutZeroBytes) {
  EXPECT_THAT(ErrorOf(Config(""), {"data.class_names=\"caf\\351\""}),
              AllOf(HasSubstr("data.class_names[0]: "), HasSubstr("0xe9")));
  EXPECT_THAT(ErrorOf(Config(""), {"data.dir=\"a\\000b\""}), HasSubstr("data.dir: "));
}

TEST_F(ConfigErrorTest, ATextThatIsNoConfig) {
  const auto error = [&](const std::string& text) { return ErrorOf(Write("other", text)); };
  EXPECT_THAT(error(""), HasSubstr("the file is empty"));
  EXPECT_THAT(error(std::string("r\0u\0n\0", 6)), HasSubstr("is not a text file"));
  EXPECT_THAT(error(std::string("\xff\xfer\0u\0n\0", 8)), HasSubstr("save it as UTF-8"));
  for (const char* text : {"{\"run\": {\"epochs\": 2}}", "run:\n  epochs: 2\n",
                           "[run]\nepochs = 2\n", "run { epochs: 2 ] }"}) {
    EXPECT_THAT(error(text), AllOf(HasSubstr("other:"), HasSubstr("protobuf text format")));
  }
  for (const char* text : {"cluster {", "run { epochs: 1 global_batch:"}) {
    EXPECT_THAT(error(text), AllOf(HasSubstr("other:1: "), HasSubstr("ends too early"),
                                   Not(HasSubstr("mistakes"))));
  }
  EXPECT_THAT(ErrorOf(dir_ + "/none.txtpb"), HasSubstr("No such file"));
  EXPECT_THAT(ErrorOf(dir_), HasSubstr(dir_));
  EXPECT_EQ(ErrorOf("/dev/zero"), "/dev/zero: larger than 64 MiB: expected a text file");
  Write("model.txtpb", "");
  EXPECT_THAT(ErrorOf(Config("")), HasSubstr("model.txtpb: the file is empty"));
}

TEST_F(ConfigErrorTest, AByteOrderMarkIsNoMistake) {
  std::ifstream good(Config(""));
  const std::string text((std::istreambuf_iterator<char>(good)), {});
  EXPECT_EQ(LoadConfig(Write("marked.txtpb", "\xEF\xBB\xBF" + text), {}).run().epochs(), 2);
}

// The error is short whatever the line contains. Time and memory are linear in the file's size.
TEST_F(ConfigErrorTest, ALineOfMegabytes) {
  const std::string many(10 << 20, 'x');
  for (const std::string& text :
       {many, "run { steps: " + many + " }", "cluster { transport: " + many + " }",
        "run { steps: 1 global_batch: 8 } # " + many + "\nrun { steps: two }",
        std::string(10 << 20, '{')}) {
    const std::string error = ErrorOf(Write("long", text));
    EXPECT_THAT(error, HasSubstr("long:"));
    EXPECT_LT(error.size(), 3000u);
  }
  std::string blocks = "run { steps: 1 global_batch: 8 } cluster { transport: 5x";
  for (int i = 0; i < 300'000; ++i) blocks += " } server { threads: 1";
  EXPECT_THAT(ErrorOf(Write("long", blocks)), HasSubstr("long:1: "));
}

// Uses names from PyTorch and Keras.
TEST_F(ConfigErrorTest, EveryMistakeOfAFirstConfigIsReportedAtOnce) {
  const std::string path = Write("first.txtpb", R"(run { epochs: 5 batch_size: 64 }
data { format: IMAGENET dir: "images" }
optimizer { type: Adam lr: 0.001 }
learning_rate: 0.001
gpus: 2
model {
  layer { conv2d { out_channels: 32 kernel_size: 3 padding: "same" } }
  layer { dense { units: 10 } }
}
)");
  const std::vector<std::string> lines = Lines(ErrorOf(path));
  const auto at = [&](int line, const char* key) {
    return HasSubstr(fmt::format("first.txtpb:{}: {}: ", line, key));
  };
  EXPECT_THAT(
      lines,
      UnorderedElementsAre(
          "11 mistakes:", AllOf(at(1, "run.batch_size"), HasSubstr("global_batch")),
          at(2, "data.format"), AllOf(at(3, "optimizer.lr"), HasSubstr("learning_rate { base: ")),
          AllOf(at(4, "learning_rate"), HasSubstr("{ base: 0.001 }")),
          AllOf(at(5, "gpus"), HasSubstr("devices")),
          AllOf(at(7, "model.layer.conv2d.out_channels"), HasSubstr("filters")),
          AllOf(at(7, "model.layer.conv2d.kernel_size"), HasSubstr("kernel: 3")),
          AllOf(at(7, "model.layer.conv2d.padding"), HasSubstr("SAME without quotes")),
          at(7, "model.layer[0].name"), at(8, "model.layer[1].name"),
          AllOf(HasSubstr("first.txtpb:8: "), HasSubstr("softmax_cross_entropy"))));
}

TEST_F(ConfigErrorTest, MistakesOfTheFileOfItsModelAndOfSettingsAreReportedAtOnce) {
  Write("model.txtpb",
        "layer { name: fc dense { unit: 10 } }\n"
        "layer { name: \"loss\" softmax_cross_entropy {} }\n");
  EXPECT_THAT(Lines(ErrorOf(Config("epochs: 3"), {"run.seeds=1", "cluster.workers=0"})),
              UnorderedElementsAre("5 mistakes:", HasSubstr("c.txtpb:2: epochs: "),
                                   HasSubstr("model.txtpb:1: model.layer.name: "),
                                   HasSubstr("model.txtpb:1: model.layer.dense.unit: "),
                                   HasSubstr("--set run.seeds=1: "), HasSubstr("cluster.workers")));
}

TEST_F(ConfigErrorTest, WhatIsGivenTwiceNamesBothLines) {
  EXPECT_THAT(ErrorOf(Config("optimizer { type: SGD }\nserver { threads: 1 }\noptimizer {}")),
              AllOf(StartsWith(dir_ + "/c.txtpb:4: optimizer: "), HasSubstr("/c.txtpb:2: ")));
  Write("model.txtpb",
        "layer { name: \"a\" dense { units: 1 } }\n"
        "layer { name: \"b\"\n relu {}\n dense { units: 1 } }\n" +
            std::string(kModel));
  EXPECT_THAT(ErrorOf(Config("")), AllOf(StartsWith(dir_ + "/model.txtpb:4: model.layer.dense: "),
                                         HasSubstr("relu (" + dir_ + "/model.txtpb:3) ")));
}

// An unreadable value must not make other settings seem wrong.
TEST_F(ConfigErrorTest, NoMistakeIsReportedThatFollowsFromAnother) {
  EXPECT_THAT(Lines(ErrorOf(Config("data { format: MNITS preprocess { crop_height: 30 crop_width: "
                                   "99 } } #"))),
              ElementsAre("2 mistakes:", HasSubstr("data.format"), HasSubstr("c.txtpb:3: data: ")));
  EXPECT_THAT(Lines(ErrorOf(Config("cluster { workers: two min_workers: 5 }"))), SizeIs(1));
}

TEST_F(ConfigErrorTest, OneMistakeIsOneLine) {
  for (const auto& [text, error] : {
           std::pair{"cluster { workers: 2 } }", "2: there is no \"{\" for this \"}\""},
           {"cluster { workers: 2 }\n}", "3: there is no \"{\" for this \"}\""},
           {"cluster {\noptimizer { type: SGD }\nworker { threads: 1 }",
            "3: a \"}\" is missing before optimizer"},
           {"cluster = { workers: 2 }", "2: cluster: expected { KEY: VALUE"},
           {"cluster: workers: 2", "2: cluster: expected { KEY: VALUE"},
           {"optimizer { type: }", "2: optimizer.type: unknown value nothing"},
           {"optimizer { type: \"Adam\" }",
            "2: optimizer.type: expected ADAM without quotes, got \"Adam\""},
           {"worker { devices: auto, 1 }", "2: worker.devices: expected text in quotes"},
           {"run { dir: runs/a }", "2: run: given twice"},
           {"cluster { interface: eth0/1 }",
            "2: cluster.interface: expected text in quotes, got eth0/1"},
           {"cluster { workers: 5x }", "2: cluster.workers: expected"},
           {"cluster { workers 5 }", "2: cluster.workers: expected \":\" and a value, got 5"},
           {"cluster { interface: \"eth0 }", "2: cluster.interface: expected text in quotes, got"},
           {"cluster { interface: \"eth0\n\" }", "2: cluster.interface: expected text in quotes"},
           {"worker { threads: 1 } \x01", "3: "},
           {"worker { program: [\"a\" 2] }", "2: worker.program: expected \",\" or \"]\""},
       }) {
    const std::string all = ErrorOf(Config(text));
    EXPECT_THAT(all, StartsWith(dir_ + "/c.txtpb:" + error)) << text;
    EXPECT_THAT(Lines(all), SizeIs(1)) << text;
  }
}

TEST_F(ConfigErrorTest, OnlySoManyMistakesAreReportedAtOnce) {
  std::string keys, values = "run { epochs: 1 }\n";
  for (int i = 0; i < 1000; ++i) keys += fmt::format("foo{}: 1\n", i);
  for (int i = 0; i < 1000; ++i) values += "run: 1\n";
  EXPECT_THAT(Lines(ErrorOf(Write("many.txtpb", keys))), SizeIs(51));
  EXPECT_THAT(Lines(ErrorOf(Write("many.txtpb", values))), SizeIs(51));
  // Unclosed brackets prevent skipping.
  EXPECT_THAT(Lines(ErrorOf(Write("deep.txtpb", "foo " + std::string(500'000, '{')))), SizeIs(1));
}

// for_types was removed from config.Limits.
TEST(RemovedSettings, AreReadOverAndNamed) {
  config::Limits limits;
  ConfigErrors errors("file");
  const PlaceOfLine place = [](int line) { return fmt::format("c.txtpb:{}", line + 1); };
  ParseText("min: 2 # for_types: 3\nfor_types: \"A B\" max: 3", place, "run", limits, errors);
  EXPECT_TRUE(errors.empty());
  EXPECT_THAT(errors.removed, ElementsAre("c.txtpb:2: run.for_types"));
  EXPECT_EQ(limits.max(), 3);
}

TEST(NearestName, FindsTypingErrorsOnly) {
  EXPECT_EQ(NearestName("epocs", {"steps", "epochs"}), "epochs");
  EXPECT_EQ(NearestName("TPC", {"IPC", "TCP"}), "TCP");
  EXPECT_EQ(NearestName("zzzzzz", {"steps", "epochs"}), "");
}

}  // namespace
}  // namespace muster::testing
