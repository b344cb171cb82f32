// pack-by-pack-9 and contiguous packs, written straightforwardly: the yardstick of benchmarks/test_packing.py.
// Usage: packing_twin N P K REPEATS < times (N*P doubles, row by row).  Prints, for each algorithm,
// its name, the cost, and the least milliseconds over the repeats.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <queue>
#include <set>
#include <vector>

using Table = std::vector<std::vector<double>>;

// Algorithm 1 with a heap.
static double one_pack(const Table& t, const std::vector<int>& tasks) {
    const int p = static_cast<int>(t[0].size());
    std::priority_queue<std::pair<double, int>> longest;
    std::vector<int> sigma(tasks.size(), 1);
    for (int a = 0; a < static_cast<int>(tasks.size()); ++a) longest.push({t[tasks[a]][0], -a});
    for (int left = p - static_cast<int>(tasks.size()); left > 0; --left) {
        const int a = -longest.top().second;
        longest.pop();
        ++sigma[a];
        longest.push({t[tasks[a]][sigma[a] - 1], -a});
    }
    return longest.top().first;
}

static double pack_by_pack(const Table& t, int k, double epsilon) {
    const int n = static_cast<int>(t.size()), p = static_cast<int>(t[0].size());
    std::vector<int> sigma(n, 1);
    std::set<std::pair<double, int>> list;  // by decreasing time, ties by index
    for (int i = 0; i < n; ++i) list.insert({-t[i][0], i});
    double total = 0.0;
    while (!list.empty()) {
        const int first = list.begin()->second;
        const double threshold = (1.0 - epsilon) * -list.begin()->first;
        int requested = 0;
        for (auto at = list.begin(); at != list.end() && -at->first >= threshold && requested < p; ++at)
            requested += sigma[at->second];
        if (requested < p && sigma[first] < p) {
            list.erase(list.begin());
            ++sigma[first];
            list.insert({-t[first][sigma[first] - 1], first});
            continue;
        }
        std::vector<int> pack;
        int used = 0;
        while (!list.empty() && static_cast<int>(pack.size()) < k) {
            const auto head = *list.begin();
            if (-head.first < threshold || used + sigma[head.second] > p) break;
            used += sigma[head.second];
            pack.push_back(head.second);
            list.erase(list.begin());
        }
        total += one_pack(t, pack);
    }
    return total;
}

static double pack_by_pack_9(const Table& t, int k) {
    double best = std::numeric_limits<double>::infinity();
    for (int i = 1; i < 10; ++i) best = std::min(best, pack_by_pack(t, k, i / 10.0));
    return best;
}

static double contiguous(const Table& t, int k) {
    const int n = static_cast<int>(t.size()), p = static_cast<int>(t[0].size());
    std::set<int> counts;
    for (int q : {1, 2, p / (2 * k), p / k, 2 * p / k, p}) counts.insert(std::min(std::max(q, 1), p));
    double least = std::numeric_limits<double>::infinity();
    for (int q : counts) {
        std::vector<int> order(n);
        for (int i = 0; i < n; ++i) order[i] = i;
        std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return t[a][q - 1] > t[b][q - 1]; });
        std::vector<double> best(n + 1, std::numeric_limits<double>::infinity());
        best[0] = 0.0;
        for (int i = 1; i <= n; ++i) {
            std::vector<int> pack;
            for (int m = 1; m <= std::min(k, i); ++m) {
                pack.push_back(order[i - m]);
                best[i] = std::min(best[i], best[i - m] + one_pack(t, pack));
            }
        }
        least = std::min(least, best[n]);
    }
    return least;
}

template <typename Algorithm>
static void report(const char* name, int repeats, Algorithm algorithm) {
    double milliseconds = std::numeric_limits<double>::infinity(), cost = 0.0;
    for (int r = 0; r < repeats; ++r) {
        const auto begin = std::chrono::steady_clock::now();
        cost = algorithm();
        const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
        milliseconds = std::min(milliseconds, took.count());
    }
    std::printf("%s %.17g %.6f\n", name, cost, milliseconds);
}

int main(int argc, char** argv) {
    if (argc != 5) return 2;
    const int n = std::atoi(argv[1]), p = std::atoi(argv[2]), k = std::atoi(argv[3]), repeats = std::atoi(argv[4]);
    Table t(n, std::vector<double>(p));
    for (auto& row : t)
        if (std::fread(row.data(), sizeof(double), p, stdin) != static_cast<std::size_t>(p)) return 3;
    report("pack-by-pack-9", repeats, [&] { return pack_by_pack_9(t, k); });
    if (n <= 300) report("contiguous", repeats, [&] { return contiguous(t, k); });
}
