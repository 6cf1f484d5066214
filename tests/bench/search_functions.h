/* Functions with known minima, for the measurement of searches. peers_search.py has the same
 * functions in Python; `run_search --check` compares them. */
#ifndef GP_SEARCH_FUNCTIONS_H
#define GP_SEARCH_FUNCTIONS_H

/* Function of the values of a trial. */
typedef struct search_function {
    const char *name;
    const char *space;
    double minimum;
    double (*value)(const char *values_json);
} search_function;

/* Return a function, or NULL. */
const search_function *search_function_find(const char *name);

#endif
