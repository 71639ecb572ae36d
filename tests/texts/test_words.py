from tdd.texts.words import normalise, unusual_space, words_and_marks


def test_words():
    assert words_and_marks("Well,  3.5 km\n") == ["Well", ",", "  ", "3", ".", "5", "km", "\n"]
    assert words_and_marks("日本語 text") == ["日", "本", "語", "text"]
    assert words_and_marks("") == []
    assert unusual_space(" a  b c\n") == 4 / 8
    assert unusual_space("a b") == unusual_space("") == 0
    assert normalise("  Straße\u00a0nach\tCafe\u0301 ") == normalise("STRASSE nach Café")
