/* What a stage reads of its part of the JSON: numbers by name, with a default. */
#pragma once
#include <map>
#include <string>

namespace boost::property_tree {
struct ptree {
    std::map<std::string, double> numbers;
    template <typename T> T get(std::string const &name, T otherwise) const {
        auto at = numbers.find(name);
        return at == numbers.end() ? otherwise : static_cast<T>(at->second);
    }
};
} // namespace boost::property_tree
