/* settings.c - options that are settings of the library. */
#include "cli/settings.h"

#include <assert.h>

#include <manta/recipe.h>

enum { MOST = 96 };

static option_kind kind_of(manta_setting_kind kind)
{
    switch (kind) {
    case MANTA_SETTING_FLAG: return OPTION_FLAG;
    case MANTA_SETTING_TEXT: return OPTION_TEXT;
    case MANTA_SETTING_INT: return OPTION_INT;
    case MANTA_SETTING_COUNT: return OPTION_COUNT;
    case MANTA_SETTING_REAL: return OPTION_REAL;
    }
    assert(false && "a kind of setting that the command line does not know");
    return OPTION_TEXT;
}

const cli_option *settings_row(const cli_option *p)
{
    static cli_option rows[MOST]; /* by the setting's place; made when asked for */
    const manta_setting *s, *wanted;
    int i = 0;

    if (p->kind != OPTION_SETTING) return p;
    wanted = manta_setting_find(p->name);
    assert(wanted && "the library has no such setting");
    while ((s = manta_setting_at(i)) && s != wanted) i++;
    assert(i < MOST);
    rows[i] = (cli_option){.name = s->name, .kind = kind_of(s->kind), .arg = s->value, .help = s->help};
    return &rows[i];
}
