"""What the tiny model knows: its closed lists of words, tools and colours.

Decides the vocabulary of the tasks. Must not know how tasks are phrased.
"""

from __future__ import annotations


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split())


WORDS = _split(
    """
    one two three four five six seven eight nine ten hello world alpha bravo charlie delta echo foxtrot golf hotel
    india juliet apple banana cherry grape lemon mango melon peach plum bread butter cheese coffee honey milk salt
    soup sugar tea water cat dog bird fish horse lion mouse sheep tiger whale wolf bear fox frog goat day night
    morning evening summer winter spring autumn monday friday sun moon star sky rain snow wind storm cloud sunny
    cloudy rainy windy warm cold hot dry wet dark light big small long short fast slow new old good bad happy sad
    house door window table chair lamp book page paper pen bottle cup box road river lake sea hill forest garden
    tree leaf flower stone sand gold silver iron wood glass music song dance game story letter number test done
    ready yes no ok thanks please here there now later first last left right up down open closed start stop end
    hi degrees celsius fahrenheit metric French German Spanish English euro dollar notes report invoice draft
    foo bar baz noon again nice fine great quick brown jumps over lazy New York Claude it is never mind tool answer
    red green blue yellow purple orange black white
    """
)
CITIES = _split("Paris Rome London Berlin Madrid Oslo Tokyo Boston Lima Cairo Vienna Dublin Prague Milan Delhi")
NAMES = _split("Ada Bob Carl Dora Emma Finn Gina Hugo Iris Jack Kate Leo Mia Noah Olga Paul Rosa Sam Tina Vera")
SPELLED = ("café", "naïve", "über", "mañana", "日本", "🙂", "🚀", "привет")
"""Said byte by byte: what a stream must not cut inside a character."""

TOOLS = _split(
    """
    get_weather get_time search lookup calculate read_file write_file list_files send_email add multiply find_user
    play_music set_timer translate get_stock_price get_user create_event delete_file run_query book_flight ping
    get_forecast get_temperature get_image take_photo take_screenshot fetch convert get_date send_message noop
    """
)
PARAMETERS = _split(
    """
    a b c city location country unit query limit path text to subject body name age song minutes language days count
    x y value key date title id symbol expression format timezone
    email message content url recipient topic amount currency
    """
)
COLOURS = {
    "red": (255, 0, 0),
    "green": (0, 200, 0),
    "blue": (0, 0, 255),
    "yellow": (255, 255, 0),
    "purple": (140, 0, 140),
    "orange": (255, 140, 0),
    "black": (0, 0, 0),
    "white": (255, 255, 255),
}
ERRORS = ("not found", "timeout", "no such city", "permission denied", "bad request", "network down")
SYSTEMS = (
    "You are a helpful assistant.",
    "Be brief.",
    "You are a test model.",
    "Answer in English.",
    "You are Claude, a helpful assistant made by Anthropic.",
    "Keep your answers short and kind.",
)
GREETING = "Hello! How can I help?"
FALLBACK = "I do not understand."
LAST_NUMBER = 99
