/* Functions for each kind of data source listed in sources.def. */
#ifndef GP_SOURCES_H
#define GP_SOURCES_H

#include "common/data/store/store.h"

/* Return whether a source, file or directory is of this kind. */
typedef bool gp_source_is_fn(const char *source);

/* Open a source; the implementation of gp_store_open_with() for this kind. */
typedef gp_status gp_source_open_fn(gp_store **out, const char *source, gp_data_role role,
                                    const gp_store_options *options, gp_error *err);

#define GP_SOURCE(place, is, open)                                                                           \
    gp_source_is_fn is;                                                                                      \
    gp_source_open_fn open;
#define GP_SOURCE_NAMED(place, name, open) gp_source_open_fn open;
#include "common/data/source/sources.def"
#undef GP_SOURCE
#undef GP_SOURCE_NAMED

/* Return the rest of a source "WORD" or "WORD:rest"; NULL: the source has another form. */
const char *gp_source_after_word(const char *source, const char *word);

/* Return whether these drawn digits are cached on disk: the count is well-formed, and neither too
 * small nor too large. */
bool gp_digits_are_cached(const char *source);

#endif
