#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "assay/align/ladder/ladder_pictures.h"
#include "assay/align/placement/mesh.h"

// Stages are panels, beside each other; in a panel tp goes to the right, cp and dp down.
namespace assay::align {
namespace {

constexpr std::int64_t most_ranks = 128;
constexpr double across = 92, down = 76, node_width = 54, node_height = 44, between_dp = 16;
constexpr double panel_top = 58, panel_edge = 28, between_panels = 40, widest = 1400;

struct Point {
  double x = 0, y = 0;
};

// How far a line bends to its right hand side, as a part of its length: axes over the same ranks part.
double bend_of(Axis axis) {
  constexpr double bends[] = {-.24, .42, -.34, .55, .3, .5, -.2};
  return bends[static_cast<std::size_t>(axis)];
}

class RanksPicture {
 public:
  explicit RanksPicture(const Parallel& p)
      : p_(p),
        row_names_(p.cp > 1   ? 106
                   : p.dp > 1 ? 76
                              : panel_edge),
        panel_width_(row_names_ + static_cast<double>(p.tp) * across + panel_edge - (across - node_width)),
        panel_height_(panel_top + static_cast<double>(p.cp * p.dp) * down +
                      static_cast<double>(p.dp - 1) * between_dp + panel_edge - (down - node_height)),
        columns_(std::clamp<std::int64_t>(static_cast<std::int64_t>(widest / (panel_width_ + between_panels)),
                                          1, p.pp)) {}

  std::string run(const std::vector<Traffic>& all, const std::vector<Traffic>& wrong, std::string_view id) {
    const double wide = static_cast<double>(columns_) * (panel_width_ + between_panels) - between_panels + 4;
    const double high =
        static_cast<double>((p_.pp + columns_ - 1) / columns_) * (panel_height_ + between_panels) -
        between_panels + 4;
    std::string out = fmt::format(
        "<svg class=\"ranks\" width=\"{0:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" role=\"img\" "
        "aria-labelledby=\"{2}-title {2}-desc\"><title id=\"{2}-title\">Ranks and whom they talk "
        "to</title><desc "
        "id=\"{2}-desc\">{3} ranks, {4} pipeline stage{5}, tp {6}, cp {7}, dp {8}. The table below has the "
        "groups.</desc>",
        wide, high, id, p_.ranks(), p_.pp, p_.pp == 1 ? "" : "s", p_.tp, p_.cp, p_.dp);
    for (std::int64_t stage = 0; stage < p_.pp; ++stage) out += panel(stage);
    out += hulls(wrong) + links(all, wrong) + nodes(wrong);
    return out + "</svg>";
  }

 private:
  Point corner(std::int64_t stage) const {
    return {2 + static_cast<double>(stage % columns_) * (panel_width_ + between_panels),
            2 + static_cast<double>(stage / columns_) * (panel_height_ + between_panels)};
  }
  Point place(int rank) const {
    const Mesh at(p_, rank);
    const Point c = corner(at.coordinate(Axis::pp));
    const std::int64_t row = at.coordinate(Axis::cp) + p_.cp * at.coordinate(Axis::dp);
    return {c.x + row_names_ + node_width / 2 + static_cast<double>(at.coordinate(Axis::tp)) * across,
            c.y + panel_top + node_height / 2 + static_cast<double>(row) * down +
                static_cast<double>(at.coordinate(Axis::dp)) * between_dp};
  }

  std::string panel(std::int64_t stage) const {
    const Point c = corner(stage);
    std::string out =
        fmt::format("<rect class=\"panel\" x=\"{}\" y=\"{}\" width=\"{:.0f}\" height=\"{:.0f}\" rx=\"8\"/>",
                    c.x, c.y, panel_width_, panel_height_);
    if (p_.pp > 1)
      out += fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\">stage {}</text>", c.x + panel_width_ / 2, c.y + 17,
                         stage);
    const int first = static_cast<int>(stage * p_.tp * p_.cp * p_.dp);
    for (std::int64_t t = 0; t < p_.tp; ++t)
      if (p_.tp > 1)
        out += fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\">tp {}</text>",
                           place(first + static_cast<int>(t)).x, c.y + 34, t);
    for (std::int64_t row = 0; row < p_.cp * p_.dp; ++row) {
      std::string text;
      if (p_.dp > 1) text += fmt::format("dp {}", row / p_.cp);
      if (p_.cp > 1) text += fmt::format("{}cp {}", text.empty() ? "" : ", ", row % p_.cp);
      out += fmt::format("<text class=\"row\" x=\"{:.0f}\" y=\"{:.0f}\">{}</text>", c.x + row_names_ - 24,
                         place(first + static_cast<int>(row * p_.tp)).y + 4, text);
    }
    return out;
  }

  bool are_neighbours(const Point& a, const Point& b) const {
    return std::hypot(b.x - a.x, b.y - a.y) < 1.05 * (down + between_dp) &&
           (std::abs(a.x - b.x) < 1 || std::abs(a.y - b.y) < 1);
  }

  // A capsule around neighbours; around each alone where others lie between them.
  std::string hulls(const std::vector<Traffic>& wrong) const {
    std::set<std::string> paths;
    for (const Traffic& t : wrong) {
      for (const std::vector<int>& group : t.groups) {
        std::string d;
        for (std::size_t i = 0; i < group.size(); ++i) {
          const Point to = place(group[i]);
          const bool goes_on = i > 0 && are_neighbours(place(group[i - 1]), to);
          d += fmt::format("{}{:.1f} {:.1f}", goes_on ? "L" : "M", to.x, to.y) + (goes_on ? "" : "h.1");
        }
        if (group.size() > 1) paths.insert(d);
      }
    }
    std::string out;
    for (const std::string_view part : {"edge", "paper", "tint"}) {
      for (const std::string& d : paths)
        out += fmt::format("<path class=\"hull hull-{}\" d=\"{}\"/>", part, d);
    }
    return out;
  }

  std::string curve(int from, int to, Axis axis) const {
    const Point a = place(from), b = place(to);
    const double bend = bend_of(axis) * (std::hypot(b.x - a.x, b.y - a.y) > 1.5 * across ? .7 : 1);
    return fmt::format("M{:.1f} {:.1f}Q{:.1f} {:.1f} {:.1f} {:.1f}", a.x, a.y,
                       (a.x + b.x) / 2 - bend * (b.y - a.y), (a.y + b.y) / 2 + bend * (b.x - a.x), b.x, b.y);
  }

  std::string links(const std::vector<Traffic>& all, const std::vector<Traffic>& wrong) const {
    const auto paths_of = [&](const std::vector<Traffic>& which) {
      std::map<Axis, std::set<std::pair<int, int>>> pairs;
      for (const Traffic& t : which) {
        for (const std::vector<int>& group : t.groups) {
          for (std::size_t i = 1; i < group.size(); ++i) pairs[t.axis].emplace(group[i - 1], group[i]);
        }
      }
      std::map<Axis, std::string> paths;
      for (const auto& [axis, list] : pairs) {
        for (const auto& [from, to] : list) paths[axis] += curve(from, to, axis);
      }
      return paths;
    };
    std::string out;
    for (const auto& [axis, d] : paths_of(all))
      out += fmt::format("<path class=\"link l-{}\" d=\"{}\"/>", name(axis), d);
    for (const auto& [axis, d] : paths_of(wrong))
      out += fmt::format("<path class=\"link wrong\" d=\"{}\"/>", d);
    return out;
  }

  std::string nodes(const std::vector<Traffic>& wrong) const {
    std::set<int> marked;
    for (const Traffic& t : wrong) {
      for (const std::vector<int>& group : t.groups) {
        if (group.size() > 1) marked.insert(group.begin(), group.end());
      }
    }
    std::string out;
    for (int rank = 0; rank < static_cast<int>(p_.ranks()); ++rank) {
      const Mesh at(p_, rank);
      const Point c = place(rank);
      const bool has_experts = p_.ep > 1 || p_.etp > 1;
      std::string title;
      for (const Axis axis : {Axis::pp, Axis::dp, Axis::cp, Axis::tp, Axis::ep, Axis::etp, Axis::edp}) {
        if (at.size(axis) > 1) title += fmt::format(", {} {}", name(axis), at.coordinate(axis));
      }
      out += fmt::format(
          "<g><title>rank {}{}</title><rect class=\"node{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" "
          "height=\"{}\" "
          "rx=\"7\"/><text class=\"rank\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>",
          rank, title, marked.contains(rank) ? " wrong" : "", c.x - node_width / 2, c.y - node_height / 2,
          node_width, node_height, c.x, c.y + (has_experts ? 0 : 5), rank);
      if (has_experts)
        out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">ep {}{}</text>", c.x, c.y + 15,
                           at.coordinate(Axis::ep),
                           p_.etp > 1 ? fmt::format(" etp {}", at.coordinate(Axis::etp)) : "");
      out += "</g>";
    }
    return out;
  }

  const Parallel& p_;
  const double row_names_, panel_width_, panel_height_;
  const std::int64_t columns_;
};

}  // namespace

std::string ranks_svg(const Rung& rung, const std::vector<Traffic>& all, const std::vector<Traffic>& wrong,
                      std::string_view id) {
  const std::int64_t n = rung.parallel.ranks();
  return n < 2 || n > most_ranks ? "" : RanksPicture(rung.parallel).run(all, wrong, id);
}

std::string ranks_legend(const std::vector<Traffic>& all, bool has_wrong) {
  std::map<Axis, std::set<std::string>> words;
  for (const Traffic& t : all) words[t.axis].insert(t.what);
  std::string out = "<ul class=\"legend\">";
  const auto add = [&](std::string_view kind, const std::string& text) {
    out += fmt::format(
        "<li><svg width=\"34\" height=\"6\" aria-hidden=\"true\"><path class=\"l-{}\" d=\"M0 "
        "3h34\"/></svg>{}</li>",
        kind, text);
  };
  if (has_wrong) add("wrong", "behind what is wrong");
  for (const auto& [axis, list] : words) {
    std::string text = fmt::format("{}: ", name(axis));
    for (const std::string& word : list) text += (word == *list.begin() ? "" : ", ") + word;
    add(name(axis), text);
  }
  return out + "</ul>";
}

}  // namespace assay::align
